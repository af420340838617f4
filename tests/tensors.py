"""Every parameter tensor of a model, as tests count them against published numbers and against what ranks hold."""

from costmodel import Transformer
from costmodel.description import tensors
from costmodel.description.tensors import Tensor


def parameter_tensors(model: Transformer, prediction: bool = False) -> tuple[Tensor, ...]:
    """In the order of registration, with or without the modules that predict further tokens, which published counts leave out."""
    found, prefix = list(tensors.embedding_tensors(model)), tensors._names(model).layer
    layers = [tensors.layer_tensors(model, *tensors._kind(model, layer)) for layer in range(model.layers)]
    for layer, inner in enumerate(layers):
        found += [one._replace(name=f"{prefix}{layer}.{one.name}") for one in inner]
    found += tensors.head_tensors(model)
    for layer in range(model.layers, model.layers + prediction * model.prediction_layers):
        found += [one._replace(name=f"{prefix}{layer}.{one.name}") for one in tensors.prediction_tensors(model)]
    return tuple(found)
