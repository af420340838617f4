"""Times of layers against PipeDream's measured profiles."""

import dataclasses

import pytest

from calibration.data.reference import DEFAULT_FOLDER, table_rows
from calibration.fit.convolutions import (
    DEVICE,
    IMAGE_NETWORKS,
    PRIORS,
    Rows,
    fit_rows,
    read_profile,
    read_profiles,
    unseen,
)
from costmodel.catalogue.loader import load_device
from costmodel.description.networks import load_network
from costmodel.text.errors import UnreadableFile

PROFILES = DEFAULT_FOLDER / "seeds" / "profiles"
needs_profiles = pytest.mark.skipif(not PROFILES.is_dir(), reason="no reference folder with profiles beside the checkout")


@pytest.mark.slow
@needs_profiles
def test_a_network_left_out_is_predicted_within_a_twentieth_on_average_and_a_sixth_at_most():
    rows = Rows(read_profiles(PROFILES), load_device(DEVICE))
    values = dict(zip(PRIORS, fit_rows(rows).values, strict=True))
    off = [abs(held_out / measured - 1) for measured, _, held_out in unseen(rows, values).values()]
    assert len(off) == len(IMAGE_NETWORKS)
    assert sum(off) / len(off) < 0.05
    assert max(off) < 0.16


@pytest.mark.slow
@needs_profiles
def test_the_catalogue_holds_what_the_command_fits():
    result = fit_rows(Rows(read_profiles(PROFILES), load_device(DEVICE)))
    kept = dataclasses.asdict(load_device(DEVICE).layer_efficiency)
    for field, value in zip(PRIORS, result.values, strict=True):
        if field in kept:
            assert kept[field] == pytest.approx(value, rel=1e-3)


@needs_profiles
@pytest.mark.parametrize(("profile", "name"), [
    ("alexnet", "alexnet"), ("vgg16", "vgg-16"), ("resnet50", "resnet-50"), ("inception_v3", "inception-v3"),
])  # fmt: skip
def test_a_built_in_network_has_the_layers_of_its_profile(profile, name):
    measured = read_profile(PROFILES / f"{profile}.txt")
    network = load_network(name)
    kinds = {type(row.layer).__name__ for row in measured}
    ours = sorted((type(n.layer).__name__, network.shape(n.inputs[0])) for n in network.nodes
                  if type(n.layer).__name__ in kinds - {"Pooling"})  # fmt: skip
    theirs = sorted((type(row.layer).__name__, row.shape) for row in measured if type(row.layer).__name__ != "Pooling")
    assert ours == theirs


@pytest.mark.parametrize("content", ["", "node1 -- Input -- forward_compute_time=0.0", "\x00"])
def test_what_is_no_profile_is_refused(tmp_path, content):
    path = tmp_path / "vgg16.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UnreadableFile, match=r"vgg16.txt"):
        read_profile(path)
    with pytest.raises(UnreadableFile, match="No such file"):
        read_profile(tmp_path / "absent.txt")


def test_a_table_that_is_missing_is_refused(tmp_path):
    with pytest.raises(UnreadableFile, match="no such file"):
        table_rows(tmp_path / "none.csv")
