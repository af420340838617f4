"""Networks of the literature, layer by layer, as the framework that trained them has them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from costmodel.description.networks.graph import Branches, GraphBuilder, Item, Network, Residual, SideBranch
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
    Linear,
    Pooling,
    Recurrent,
)
from costmodel.text.checks import positive_int, text, whole
from costmodel.text.errors import InvalidValue, UnknownName


def _convolutions(*filters: int) -> list[Item]:
    items: list[Item] = []
    for count in filters:
        items += [Convolution(count, 3, padding=1), Elementwise()]
    return [*items, Pooling("max", 2)]


def _classifier(*features: int) -> list[Item]:
    items: list[Item] = [Flatten()]
    for width in features[:-1]:
        items += [Linear(width), Elementwise(), Dropout()]
    return [*items, Linear(features[-1]), CrossEntropy()]


def vgg16(classes: int = 1000) -> Network:
    """VGG-16, configuration D [simonyan2015]_.

    Examples
    --------
    >>> vgg16().parameters
    138357544
    """
    body = [*_convolutions(64, 64), *_convolutions(128, 128), *_convolutions(256, 256, 256),
            *_convolutions(512, 512, 512), *_convolutions(512, 512, 512)]  # fmt: skip
    return Network.sequence("vgg-16", (3, 224, 224), [*body, *_classifier(4096, 4096, classes)])


def alexnet(classes: int = 1000) -> Network:
    """AlexNet in its one-column form [krizhevsky2014]_, which torchvision has: no local response norm.

    Examples
    --------
    >>> alexnet().parameters
    61100840
    """
    body: list[Item] = [
        Convolution(64, 11, 4, 2), Elementwise(), Pooling("max", 3, 2),
        Convolution(192, 5, padding=2), Elementwise(), Pooling("max", 3, 2),
        Convolution(384, 3, padding=1), Elementwise(),
        Convolution(256, 3, padding=1), Elementwise(),
        Convolution(256, 3, padding=1), Elementwise(), Pooling("max", 3, 2),
        Dropout(),
    ]  # fmt: skip
    return Network.sequence("alexnet", (3, 224, 224), [*body, *_classifier(4096, 4096, classes)])


def _normed(filters: int, kernel: int | tuple[int, int], stride: int = 1, padding: int | tuple[int, int] = 0) -> list[Item]:
    return [Convolution(filters, kernel, stride, padding, bias=False), BatchNorm(), Elementwise()]


def resnet50(classes: int = 1000) -> Network:
    """ResNet-50 [he2016]_ with the stride on the middle convolution, as torchvision has it.

    Examples
    --------
    >>> resnet50().parameters
    25557032
    """
    body: list[Item] = [*_normed(64, 7, 2, 3), Pooling("max", 3, 2, 1)]
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 * 2**stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            path = [*_normed(width, 1), *_normed(width, 3, stride, 1), *_normed(4 * width, 1)[:-1]]
            around = _normed(4 * width, 1, stride)[:-1] if not block else []
            body += [Residual(path, around), Elementwise()]
    body += [Pooling("mean"), *_classifier(classes)]
    return Network.sequence("resnet-50", (3, 224, 224), body)


def inception_v3(classes: int = 1000, auxiliary: bool = True) -> Network:
    """Inception-v3 [szegedy2016]_ for images of 299 pixels, as torchvision has it.

    Parameters
    ----------
    classes : to tell apart
    auxiliary : with the auxiliary classifier that trains beside the main one

    Examples
    --------
    >>> inception_v3().parameters, inception_v3(auxiliary=False).parameters
    (27161264, 23834568)
    """

    def mixed_a(pooled: int) -> Item:
        return Branches([_normed(64, 1), [*_normed(48, 1), *_normed(64, 5, padding=2)],
                         [*_normed(64, 1), *_normed(96, 3, padding=1), *_normed(96, 3, padding=1)],
                         [Pooling("mean", 3, 1, 1), *_normed(pooled, 1)]])  # fmt: skip

    def mixed_c(width: int) -> Item:
        row, column = ((1, 7), (0, 3)), ((7, 1), (3, 0))

        def seven(filters: int, along: tuple[tuple[int, int], tuple[int, int]]) -> list[Item]:
            return _normed(filters, along[0], padding=along[1])

        return Branches([_normed(192, 1), [*_normed(width, 1), *seven(width, row), *seven(192, column)],
                         [*_normed(width, 1), *seven(width, column), *seven(width, row), *seven(width, column), *seven(192, row)],
                         [Pooling("mean", 3, 1, 1), *_normed(192, 1)]])  # fmt: skip

    def mixed_e() -> Item:
        both = Branches([_normed(384, (1, 3), padding=(0, 1)), _normed(384, (3, 1), padding=(1, 0))])
        return Branches([_normed(320, 1), [*_normed(384, 1), both], [*_normed(448, 1), *_normed(384, 3, padding=1), both],
                         [Pooling("mean", 3, 1, 1), *_normed(192, 1)]])  # fmt: skip

    side = [Pooling("mean", 5, 3), *_normed(128, 1), *_normed(768, 5), Pooling("mean"), *_classifier(classes)]
    body: list[Item] = [
        *_normed(32, 3, 2), *_normed(32, 3), *_normed(64, 3, padding=1), Pooling("max", 3, 2),
        *_normed(80, 1), *_normed(192, 3), Pooling("max", 3, 2),
        mixed_a(32), mixed_a(64), mixed_a(64),
        Branches([_normed(384, 3, 2), [*_normed(64, 1), *_normed(96, 3, padding=1), *_normed(96, 3, 2)],
                  [Pooling("max", 3, 2)]]),
        mixed_c(128), mixed_c(160), mixed_c(160), mixed_c(192),
        *([SideBranch(side)] if auxiliary else []),
        Branches([[*_normed(192, 1), *_normed(320, 3, 2)],
                  [*_normed(192, 1), *_normed(192, (1, 7), padding=(0, 3)), *_normed(192, (7, 1), padding=(3, 0)),
                   *_normed(192, 3, 2)],
                  [Pooling("max", 3, 2)]]),
        mixed_e(), mixed_e(), Pooling("mean"), Dropout(), *_classifier(classes),
    ]  # fmt: skip
    return Network.sequence("inception-v3", (3, 299, 299), body)


def gnmt(layers: int = 8, hidden: int = 1024, vocabulary: int = 32320, steps: int = 30) -> Network:
    """GNMT [wu2016]_ as PipeDream trained it: half of the layers encode, half decode, additive attention between.

    The first encoder layer reads both ways; from the third layer on a residual connection goes around each, and
    every decoder layer after the first takes the attention's context beside its input.

    Parameters
    ----------
    layers : LSTMs in all, an even number: 8 or 16 were published
    hidden : features everywhere
    vocabulary : of both languages
    steps : tokens of a sentence

    Examples
    --------
    >>> gnmt(8).parameters, gnmt(16).parameters
    (193765952, 277717568)
    """
    whole("layers", layers, 1000)
    if layers < 4 or layers % 2:
        raise InvalidValue("layers", layers, "an even number of at least 4")
    draft = GraphBuilder()
    encoded = draft.add([Embedding(vocabulary, hidden), Recurrent(hidden, bidirectional=True)], "source")
    for layer in range(1, layers // 2):
        path = [Dropout(), Recurrent(hidden)]
        encoded = draft.add(path if layer == 1 else [Residual(path)], encoded)
    decoded = draft.add([Embedding(vocabulary, hidden), Recurrent(hidden)], "target")
    context = draft.node(Attention(), decoded, encoded)
    for layer in range(1, layers // 2):
        joined = draft.node(Join("concatenate"), draft.node(Dropout(), decoded), context)
        after = draft.node(Recurrent(hidden), joined)
        decoded = after if layer == 1 else draft.node(Join("add"), after, decoded)
    draft.add([Linear(vocabulary), CrossEntropy()], decoded)
    return Network(name=f"gnmt-{layers}", inputs={"source": (steps,), "target": (steps,)}, nodes=draft.nodes)


def awd_lm(layers: int = 3, embedding: int = 400, hidden: int = 1150, vocabulary: int = 10_000, steps: int = 70) -> Network:
    """AWD language model [merity2018]_: LSTMs between an embedding and its transpose.

    Parameters
    ----------
    layers : LSTMs; 3 were published
    embedding : features of a word, and of the last LSTM
    hidden : features of the other LSTMs
    vocabulary : words; 10,000 in the Penn Treebank
    steps : words through which gradients flow

    Examples
    --------
    >>> awd_lm().parameters
    24221600
    """
    positive_int("layers", layers, 1000)
    body: list[Item] = [Embedding(vocabulary, embedding), Dropout()]
    for width in [hidden] * (layers - 1) + [embedding]:
        body += [Recurrent(width), Dropout()]
    body += [Linear(vocabulary, tied=True), CrossEntropy()]
    return Network.sequence("awd-lm", (steps,), body, "words")


def s2vt(vocabulary: int = 46_168, steps: int = 80) -> Network:
    """S2VT [venugopalan2015]_: two LSTMs turn features of video frames into words.

    4,096 features of a frame are embedded in 500, words too; both LSTMs have 1,000 units. (Two bias vectors an LSTM,
    as cuDNN has it, are 32,000 bytes more than Caffe's one.) The authors' Caffe files train on 32 streams at once, of 80 steps
    each (``buffer_32_s2vt_80``, gist.github.com/vsubhashini/38d087e140854fee4b14): their ``batch_size: 80``, which
    others cite as the minibatch, counts steps, and 32 clips are a minibatch.

    Parameters
    ----------
    vocabulary : words; with the default the weights are as large as the released model (a file of 349,436,137 bytes)
    steps : frames and words together; unrolled to 80

    Examples
    --------
    >>> 4 * s2vt().parameters
    349450672
    """
    draft = GraphBuilder()
    frames = draft.add([Linear(500), Dropout(), Recurrent(1000)], "frames")
    words = draft.add([Embedding(vocabulary, 500), Dropout()], "words")
    joined = draft.node(Join("concatenate"), words, frames)
    draft.add([Recurrent(1000), Dropout(), Linear(vocabulary), CrossEntropy()], joined)
    return Network(name="s2vt", inputs={"frames": (steps, 4096), "words": (steps,)}, nodes=draft.nodes)


NETWORKS: dict[str, Callable[[], Network]] = {
    "vgg-16": vgg16, "alexnet": alexnet, "resnet-50": resnet50, "inception-v3": inception_v3, "gnmt-8": gnmt,
    "gnmt-16": functools.partial(gnmt, 16), "awd-lm": awd_lm, "s2vt": s2vt,
}  # fmt: skip
"""Networks of the literature by name."""


def load_network(name: str) -> Network:
    """A network of the literature.

    Parameters
    ----------
    name : of it

    Raises
    ------
    UnknownName
        where there is none of this name

    Examples
    --------
    >>> load_network("gnmt-16").parameters
    277717568
    """
    known = network_called(text("name", name))
    if known is None:
        raise UnknownName("network", name, NETWORKS)
    return NETWORKS[known]()


def network_called(name: str) -> str | None:
    """The network that a name stands for, whatever its case and hyphens; None where it stands for none.

    Examples
    --------
    >>> network_called("ResNet50"), network_called("gnmt")
    ('resnet-50', None)
    """
    wanted = re.sub(r"[-_ ]", "", name.lower())
    return next((known for known in NETWORKS if known.replace("-", "") == wanted), None)
