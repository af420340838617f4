"""Networks described by their shapes: images, sequences and vectors through convolutions, recurrences and products.

`layers` says what a layer does and costs, `graph` joins layers to a `Network`, `published` has those of the literature.
"""

from costmodel.description.networks.graph import (
    Aside,
    Branches,
    Draft,
    Item,
    LayerCost,
    Network,
    Node,
    Residual,
)
from costmodel.description.networks.layers import (
    Attention,
    BatchNorm,
    Convolution,
    CrossEntropy,
    Dropout,
    Elementwise,
    Embedding,
    Flatten,
    Join,
    Kernels,
    Layer,
    Linear,
    LocalResponseNorm,
    Pooling,
    Recurrent,
    Shape,
)
from costmodel.description.networks.published import (
    NETWORKS,
    alexnet,
    awd_lm,
    gnmt,
    inception_v3,
    load_network,
    resnet50,
    s2vt,
    vgg16,
)

__all__ = [
    "NETWORKS", "Aside", "Attention", "BatchNorm", "Branches", "Convolution", "CrossEntropy", "Draft", "Dropout",
    "Elementwise", "Embedding", "Flatten", "Item", "Join", "Kernels", "Layer", "LayerCost", "Linear", "LocalResponseNorm",
    "Network", "Node", "Pooling", "Recurrent", "Residual", "Shape", "alexnet", "awd_lm", "gnmt", "inception_v3",
    "load_network", "resnet50", "s2vt", "vgg16",
]  # fmt: skip
