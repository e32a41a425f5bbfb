"""Flavors (contract R7)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_magic.core.flavor import NODES, TABLE, Flavor, make, mib, parse
from tfjob_magic.errors import InvalidJobError

V100X8 = Flavor("v100x8", "V100", 8, 72, 524288)


def refusal(text, own=None):
    with pytest.raises(InvalidJobError) as caught:
        parse(text, own or {})
    (problem,) = caught.value.problems
    assert problem.field == "flavor"
    return problem.message


def is_flavor_or_refusal(text):
    try:
        flavor = parse(text, {})
    except InvalidJobError as error:
        return len(error.problems) == 1
    return flavor.cpus >= 1 and parse(flavor.name, {}) == flavor


def test_r7_v100x8_is_the_documentations_node():
    assert parse("v100x8", {}) == V100X8


@pytest.mark.parametrize(
    "text",
    [
        "GPU: 8*NVIDIA-V100 | CPU: 72 cores | Memory: 512 GB",
        "GPU: 8 × NVIDIA-V100 | CPU: 72 cores | Memory: 512 GB",  # noqa: RUF001
        "gpu:8*nvidia-v100|cpu:72cores|memory:512GB",
        "  GPU :  8 x V100  |  CPU : 72  |  Memory : 512 GiB ",
        "GPU: 8*NVIDIA V100 (32GB) | CPU: 72 vCPUs | Memory: 0.5 TB",
        "GPU: 8*Tesla V100 | CPU: 72 cores | Memory: 524288 MiB",
        "GPU： 8*NVIDIA-V100｜CPU： 72核｜内存： 512GB",  # noqa: RUF001
        "Memory: 512 GB | CPU: 72 cores | GPU: 8*NVIDIA-V100",
        "V100X8",
        " v100x8 ",
    ],
)
def test_r7_the_consoles_text_is_the_named_flavor_however_it_is_spaced(text):
    assert parse(text, {}) == V100X8


def test_r7_the_documentations_other_name_for_the_card_is_kept():
    flavor = parse("GPU: 8 × GP-Vnt1 | CPU: 72 cores | Memory: 512 GB", {})  # noqa: RUF001
    assert (flavor.accelerator, flavor.accelerators, flavor.cpus, flavor.memory_mib) == (
        "GP-Vnt1",
        8,
        72,
        524288,
    )


def test_r7_other_accelerators_and_memory_inside_the_cpu_part_are_read():
    assert parse("Ascend: 8*Ascend snt9|CPU: 192vCPUs 768GB", {}) == TABLE["snt9x8"]


def test_r7_a_text_copied_from_markdown_is_read():
    assert parse(r"GPU: 8*NVIDIA-V100 \| CPU: 72 cores \| Memory: 512 GB", {}) == V100X8


@pytest.mark.parametrize("kind", ["V100 \\", "V100;", "V1=00", "V100\x1b[1m", "V\n100", "-"])
def test_an_accelerator_has_a_plain_name(kind):
    words = refusal(f"GPU: 8*{kind} | CPU: 72 cores | Memory: 512 GB")
    assert "accelerator" in words
    assert "\x1b" not in words


@pytest.mark.parametrize("kind", ["GP-Vnt1", "H100_SXM (80GB) PCIe", "RTX 4090/24.0", "昇腾910"])
def test_an_accelerator_that_the_table_does_not_know_keeps_its_name(kind):
    assert parse(f"GPU: 1*{kind} | CPU: 8 cores | Memory: 8 GB", {}).accelerator == kind


def test_r7_a_cpu_flavor_is_read_in_both_ways():
    flavor = Flavor("cpu-8c32g", None, 0, 8, 32768)
    assert parse("cpu-8c32g", {}) == flavor
    assert parse("CPU: 8 cores | Memory: 32 GB", {}) == flavor
    assert parse("GPU: 0*V100 | CPU: 8 cores | Memory: 32 GB", {}) == flavor


def test_r7_kind_x_n_is_n_eighths_of_the_node():
    for node in NODES:
        for count in range(1, 9):
            flavor = parse(f"{node.kind.lower()}x{count}", {})
            assert flavor.accelerators == count
            assert flavor.cpus * 8 == node.cpus * count
            assert flavor.memory_mib * 8 == node.memory_mib * count


def test_the_table_lists_what_the_console_offers():
    assert [name for name in TABLE if name.startswith("v100")] == [
        "v100x1",
        "v100x2",
        "v100x4",
        "v100x8",
    ]
    assert all(parse(name, {}) == flavor for name, flavor in TABLE.items())


def test_every_row_of_the_table_names_its_source():
    assert all(len(node.source) > 20 for node in NODES)


def test_the_users_own_flavor_comes_first():
    own = {"mine": Flavor("mine", "A100", 4, 32, 262144), "v100x8": Flavor("v100x8", None, 0, 1, 1)}
    assert parse("mine", own) == own["mine"]
    assert parse("v100x8", own) == own["v100x8"]


def test_r7_an_unknown_name_is_refused_with_the_nearest_names():
    assert "did you mean v100x8" in refusal("v10x8")
    assert "did you mean mine2" in refusal("mine", {"mine2": V100X8})
    assert "v100x" in refusal("zzzzzzzz")


def test_more_than_a_nodes_cards_are_refused_with_what_would_do():
    assert "v100x1 to v100x8" in refusal("v100x16")
    assert "--nodes" in refusal("v100x16")
    assert "v100x1 to v100x8" in refusal("v100x0")


@pytest.mark.parametrize(
    "text", ["cpu-8c32gb", "cpu-8c-32g", "cpu8c32g", "CPU-8 cores 32 GB", "cpu_8_32", "cpu-8c32"]
)
def test_what_is_nearly_a_cpu_flavor_is_told_as_one(text):
    assert refusal(text).endswith("did you mean cpu-8c32g?")


@pytest.mark.parametrize("text", ["cpu-4c", "cpu", "cpu-c8g32", "cpu-lots"])
def test_r7_how_a_cpu_flavor_is_written_is_told(text):
    assert "cpu-8c32g" in refusal(text)
    assert "v100" not in refusal(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("GPU: 8*V100 | CPU: 72 cores", "does not say its memory"),
        ("GPU: 8*V100 | Memory: 512 GB", "does not say its CPU"),
        ("GPU: lots | CPU: 72 cores | Memory: 512 GB", "accelerators 'lots'"),
        ("GPU: 8*V100 | CPU: many | Memory: 512 GB", "cores 'many'"),
        ("GPU: 8*V100 | CPU: 72 cores | Memory: plenty", "memory 'plenty'"),
        ("GPU: 8*V100 | 72 cores | Memory: 512 GB", "'72 cores'"),
        ("CPU: 0 cores | Memory: 1 GB", "at least one core"),
        ("cpu-0c1g", "at least one core"),
        ("cpu-1c0g", "at least one core"),
        ("", "there is no flavor ''"),
        ("x" * 9999, "there is no flavor"),
        ("9" * 9999 + "x8", "there is no flavor"),
    ],
)
def test_nonsense_is_refused_with_what_is_wrong(text, words):
    assert words in refusal(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512 GB", 524288),
        ("1.5TiB", 1572864),
        ("800 MiB", 800),
        ("8G", 8192),
        ("x", None),
        ("5", None),
    ],
)
def test_memory_is_counted_in_mib(text, size):
    assert mib(text) == size


@given(
    kind=st.sampled_from([None, "V100", "A100", "GP-Vnt1", "Foo 3"]),
    count=st.integers(0, 16),
    cpus=st.integers(1, 512),
    memory=st.integers(1, 2**22),
)
def test_a_flavor_is_found_again_by_its_name(kind, count, cpus, memory):
    flavor = make(kind, count if kind else 0, cpus, memory)
    assert parse(flavor.name, {}) == flavor


@given(st.text())
def test_any_text_is_a_flavor_or_one_clear_refusal(text):
    assert is_flavor_or_refusal(text)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["GPU", "CPU", "Memory", "NPU", "", "内存"]),
            st.sampled_from(["8*V100", "72 cores", "512 GB", "0", "-1", "8*", "x", "9" * 40]),
        )
    )
)
def test_any_console_text_is_a_flavor_or_one_clear_refusal(parts):
    assert is_flavor_or_refusal(" | ".join(f"{key}: {value}" for key, value in parts))
