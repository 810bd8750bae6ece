"""Records: believed whole, with all their files, or not at all."""

from pathlib import Path

from nas.files.records import read_record, write_record


def test_only_whole_records_are_believed(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"abc")
    write_record(tmp_path, "r.json", {"recipe": {"epochs": 3}}, [tmp_path / "weights"])
    assert read_record(tmp_path, "r.json", {"recipe": {"epochs": 3}}) is not None
    assert read_record(tmp_path, "r.json", {"recipe": {"epochs": 4}}) is None
    text = (tmp_path / "r.json").read_text()
    (tmp_path / "r.json").write_text(text[: len(text) // 2])
    assert read_record(tmp_path, "r.json", {}) is None
    (tmp_path / "r.json").write_text(text)
    (tmp_path / "weights").write_bytes(b"abd")
    assert read_record(tmp_path, "r.json", {}) is None
    (tmp_path / "weights").unlink()
    assert read_record(tmp_path, "r.json", {}) is None
