"""The notebooks as they are saved: they read well where nobody can run them. CI runs them too."""

import re
from pathlib import Path

import nbformat
import pytest

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def code_cells(path):
    cells = nbformat.read(path, as_version=4).cells
    return [cell for cell in cells if cell.cell_type == "code"]


def texts(cell):
    for output in cell.outputs:
        yield output.get("text", "")
        yield output.get("data", {}).get("text/plain", "")
        yield "\n".join(output.get("traceback", []))


def test_there_are_a_quickstart_one_node_and_a_failing_job():
    assert {path.stem for path in NOTEBOOKS} == {"quickstart", "one_node", "failing"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_saved_as_it_ran_from_top_to_bottom(path):
    cells = code_cells(path)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_job_s_cell_is_saved_with_its_end(path):
    (job,) = [cell for cell in code_cells(path) if cell.source.startswith("%%tfjob")]
    ended = "\n".join(texts(job))
    assert ("✗" if path.stem == "failing" else "✓") in ended


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_only_a_cell_that_is_meant_to_raise_was_saved_with_an_error(path):
    for cell in code_cells(path):
        raised = any(output.output_type == "error" for output in cell.outputs)
        assert raised == ("raises-exception" in cell.metadata.get("tags", []))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_saved_outputs_name_no_folder_of_the_machine_that_made_them(path):
    for cell in code_cells(path):
        folders = re.findall(r"(?<![\w/~])/(?:[\w.-]+/)+", "\n".join(texts(cell)))
        assert all(folder.startswith("/home/jo/") for folder in folders)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_loads_the_magic_in_a_cell_before_the_job(path):
    sources = [cell.source for cell in code_cells(path)]
    assert sources[0].startswith("%load_ext tfjob_magic")
    assert sources[1].startswith("%%tfjob")
