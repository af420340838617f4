"""Networks described by their shapes: images, sequences and vectors through convolutions, recurrences and products.

`layers` says what a layer does and costs, `graph` joins layers to a `Network`, `published` has those of the literature.
"""

from costmodel.description.networks.graph import Branches, GraphBuilder, Item, LayerCost, Network, Node, Residual, SideBranch
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
    Linear,
    LocalResponseNorm,
    NetworkLayer,
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
    network_called,
    resnet50,
    s2vt,
    vgg16,
)

__all__ = [
    "NETWORKS", "Attention", "BatchNorm", "Branches", "Convolution", "CrossEntropy", "Dropout", "Elementwise", "Embedding",
    "Flatten", "GraphBuilder", "Item", "Join", "Kernels", "LayerCost", "Linear", "LocalResponseNorm", "Network", "NetworkLayer",
    "Node", "Pooling", "Recurrent", "Residual", "Shape", "SideBranch", "alexnet", "awd_lm", "gnmt", "inception_v3",
    "load_network", "network_called", "resnet50", "s2vt", "vgg16",
]  # fmt: skip
