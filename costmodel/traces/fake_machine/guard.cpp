// Makes a PyTorch without CUDA accept tensors that say they are on "cuda": devices, streams and events are numbers, memory none.
// Loaded before torch's Python package asks for its CUDA hooks, which it does once.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <array>
#include <atomic>
#include <mutex>
#include <vector>

using namespace c10;

namespace {
constexpr DeviceIndex MOST = 16;  // GPUs that a server may have
DeviceIndex count = 8;
thread_local DeviceIndex current = 0;
thread_local std::array<StreamId, MOST> streams{};
DeviceIndex first = 0;  // of threads that never chose one
thread_local bool chosen = false;

DeviceIndex here() { return chosen ? current : first; }

std::mutex lock;
std::vector<int64_t> moves;  // kind (0 recorded, 1 waited), event, stream: what autograd's engine orders among streams
std::atomic<int64_t> events{1};
std::atomic<StreamId> made{1 << 20};  // streams of no kind; those of torch.cuda count from 1

void note(int64_t kind, int64_t event, int64_t stream) {
  std::lock_guard<std::mutex> held(lock);
  moves.insert(moves.end(), {kind, event, stream});
}

struct Guard final : impl::DeviceGuardImplInterface {
  static constexpr DeviceType static_type = DeviceType::CUDA;
  Guard() = default;
  explicit Guard(DeviceType) {}
  DeviceType type() const override { return static_type; }
  Device exchangeDevice(Device d) const override { Device old = getDevice(); setDevice(d); return old; }
  Device getDevice() const override { return Device(static_type, here()); }
  void setDevice(Device d) const override { if (d.index() >= 0) { current = d.index(); chosen = true; } }
  void uncheckedSetDevice(Device d) const noexcept override { if (d.index() >= 0) { current = d.index(); chosen = true; } }
  Stream getStream(Device d) const override { return Stream(Stream::UNSAFE, at(d), streams[at(d).index()]); }
  Stream getDefaultStream(Device d) const override { return Stream(Stream::DEFAULT, at(d)); }
  Stream getNewStream(Device d, int) const override { return Stream(Stream::UNSAFE, at(d), made++); }
  Stream exchangeStream(Stream s) const override {
    StreamId old = streams[s.device_index()];
    streams[s.device_index()] = s.id();
    return Stream(Stream::UNSAFE, s.device(), old);
  }
  DeviceIndex deviceCount() const noexcept override { return count; }
  void record(void** event, const Stream& stream, const DeviceIndex, const EventFlag) const override {
    if (*event == nullptr) *event = reinterpret_cast<void*>(events++);
    note(0, reinterpret_cast<int64_t>(*event), stream.id());
  }
  void block(void* event, const Stream& stream) const override {
    if (event != nullptr) note(1, reinterpret_cast<int64_t>(event), stream.id());
  }
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const DeviceIndex) const override {}
  void recordDataPtrOnStream(const DataPtr&, const Stream&) const override {}
  Device at(Device d) const { return d.index() < 0 ? Device(static_type, here()) : d; }
};

struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  DeviceIndex exchangeDevice(DeviceIndex d) const override { DeviceIndex old = here(); setCurrentDevice(d); return old; }
  DeviceIndex maybeExchangeDevice(DeviceIndex d) const override { return d < 0 ? here() : exchangeDevice(d); }
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool hasCuDNN() const override { return true; }
  bool compiledWithCuDNN() const override { return true; }
  bool supportsDilatedConvolutionWithCuDNN() const override { return true; }
  bool supportsDepthwiseConvolutionWithCuDNN() const override { return true; }
  bool supportsBFloat16ConvolutionWithCuDNNv8() const override { return true; }
  long versionCuDNN() const override { return 91002; }
  long versionRuntimeCuDNN() const override { return 91002; }
  long versionCUDART() const override { return 12080; }
  std::string showConfig() const override { return "  - CUDA Runtime 12.8\n"; }
  double batchnormMinEpsilonCuDNN() const override { return 0.0; }
  DeviceIndex current_device() const override { return here(); }
  DeviceIndex deviceCount() const override { return count; }
  DeviceIndex getCurrentDevice() const override { return here(); }
  void setCurrentDevice(DeviceIndex d) const override { if (d >= 0) { current = d; chosen = true; } }
  int getNumGPUs() const override { return count; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  bool isPinnedPtr(const void*) const override { return true; }
  Allocator* getPinnedMemoryAllocator() const override { return GetCPUAllocator(); }
  const at::Generator& getDefaultGenerator(DeviceIndex) const override { return at::detail::getDefaultCPUGenerator(); }
  at::Generator getNewGenerator(DeviceIndex) const override { return at::detail::createCPUGenerator(); }
  void deviceSynchronize(DeviceIndex) const override {}
};

}  // namespace

namespace at {
REGISTER_CUDA_HOOKS(CUDAHooks)
}

namespace {
const Guard guard;
impl::DeviceGuardImplRegistrar registrar(DeviceType::CUDA, &guard);
}  // namespace

extern "C" {
// Another rank begins in this process: nothing is left of the last one's devices and streams.
void costmodel_devices(int n, int mine) {
  count = n;
  first = mine;
  chosen = false;
  streams.fill(0);
}
int costmodel_device() { return here(); }
void costmodel_set_device(int d) { current = d; chosen = true; }
int64_t costmodel_stream() { return streams[here()]; }
void costmodel_set_stream(int64_t s) { streams[here()] = s; }
// The next moves of the engine: fills three numbers each, and gives how many.
int costmodel_moves(int64_t* out, int room) {
  std::lock_guard<std::mutex> held(lock);
  int n = std::min<int>(room, moves.size() / 3);
  std::copy(moves.begin(), moves.begin() + 3 * n, out);
  moves.erase(moves.begin(), moves.begin() + 3 * n);
  return n;
}
}
