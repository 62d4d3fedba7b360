"""Data sets over what exists: the standard library as text, photos, handwritten digits. Each result is checked by
another tool, or by plain Python."""

from __future__ import annotations

import collections
import json
import pathlib
import re
from typing import Any

import numpy as np
import pytest

from tests.under_test import ray

pytestmark = pytest.mark.usefixtures("session")

LIBRARY = pathlib.Path(json.__file__).parents[1]
PACKAGES = ("asyncio", "concurrent", "email", "http", "importlib", "json", "logging", "xml")
WORD = re.compile(r"[A-Za-z_]\w*")
SIDE = 48
CROPS = 300


@pytest.fixture(scope="module")
def sources() -> list[str]:
    found = [
        *LIBRARY.glob("*.py"),
        *(path for each in PACKAGES for path in (LIBRARY / each).rglob("*.py")),
    ]
    return sorted(map(str, found))


@pytest.fixture(scope="module")
def lines(sources: list[str]) -> list[tuple[str, str]]:
    """Path and text of lines that are not blank."""
    every = [(path, text) for path in sources for text in pathlib.Path(path).read_text("utf-8").splitlines()]
    return [(path, text) for path, text in every if text and not text.isspace()]


@pytest.fixture(scope="module")
def crops(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, np.ndarray]]:
    """A folder of JPEG files, half of either photo, and what Pillow reads there."""
    datasets = pytest.importorskip("sklearn.datasets")
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("crops")
    rng = np.random.default_rng(0)
    photos = datasets.load_sample_images().images
    arrays = {}
    for n in range(CROPS):
        photo = photos[n % 2]
        y, x = (int(rng.integers(0, size - SIDE)) for size in photo.shape[:2])
        path = folder / f"photo={n % 2}" / f"{n:05}.jpg"
        path.parent.mkdir(exist_ok=True)
        image.fromarray(photo[y : y + SIDE, x : x + SIDE]).save(path, quality=90)
        with image.open(path) as opened:
            arrays[str(path)] = np.asarray(opened)
    return str(folder), arrays


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, str]:
    """As a frame of pandas, and as a folder of Parquet files."""
    datasets = pytest.importorskip("sklearn.datasets")
    frame = datasets.load_digits(as_frame=True).frame
    folder = tmp_path_factory.mktemp("digits")
    for part in range(6):
        frame.iloc[300 * part : 300 * (part + 1)].to_parquet(folder / f"{part}.parquet", index=False)
    return frame, str(folder)


class TestTheStandardLibraryAsText:
    def test_words(self, sources: list[str], lines: list[tuple[str, str]]) -> None:
        def words(batch: dict[str, np.ndarray]) -> dict[str, list[str]]:
            return {"word": [word for text in batch["text"] for word in WORD.findall(text)]}

        counts = ray.data.read_text(sources).map_batches(words).groupby("word").count()
        found = {row["word"]: row["count()"] for row in counts.take_all()}
        assert found == collections.Counter(word for _, text in lines for word in WORD.findall(text))
        often = counts.sort(["count()", "word"], descending=[True, False]).take(20)
        expected = sorted(found.items(), key=lambda each: (-each[1], each[0]))[:20]
        assert [tuple(row.values()) for row in often] == expected

    def test_lines_of_each_module(self, sources: list[str], lines: list[tuple[str, str]]) -> None:
        ds = ray.data.read_text(sources, include_paths=True)
        found = {row["path"]: row["count()"] for row in ds.groupby("path").count().take_all()}
        assert found == collections.Counter(path for path, _ in lines)
        assert ds.count() == len(lines)

    def test_lines_come_in_order(self, sources: list[str], lines: list[tuple[str, str]]) -> None:
        ds = ray.data.read_text(sources, include_paths=True)
        assert [(row["path"], row["text"]) for row in ds.iter_rows()] == lines

    def test_blank_lines_can_stay(self, sources: list[str]) -> None:
        ds = ray.data.read_text(sources[:40], drop_empty_lines=False)
        expected = [
            line for path in sources[:40] for line in pathlib.Path(path).read_text("utf-8").splitlines()
        ]
        assert [row["text"] for row in ds.take_all()] == expected

    def test_the_longest_lines(self, sources: list[str], lines: list[tuple[str, str]]) -> None:
        def measured(row: dict[str, Any]) -> dict[str, Any]:
            return {**row, "length": len(row["text"])}

        ds = ray.data.read_text(sources, include_paths=True).map(measured)
        longest = ds.sort(["length", "text"], descending=True).limit(15)
        expected = sorted(((len(text), text) for _, text in lines), reverse=True)[:15]
        assert [(row["length"], row["text"]) for row in longest.take_all()] == expected
        assert ds.max("length") == expected[0][0]
        assert ds.mean("length") == pytest.approx(np.mean([len(text) for _, text in lines]))

    def test_a_folder_with_a_pattern(self, lines: list[tuple[str, str]]) -> None:
        ds = ray.data.read_text(str(LIBRARY / "asyncio" / "**" / "*.py"))
        # As in Ray's folders, files whose names begin with "_" are left out.
        inside = [text for path, text in lines if "/asyncio/" in path and "/asyncio/_" not in path]
        assert sorted(row["text"] for row in ds.take_all()) == sorted(inside)

    def test_written_and_read_back(
        self, sources: list[str], lines: list[tuple[str, str]], tmp_path: pathlib.Path
    ) -> None:
        folder = str(tmp_path / "json")
        ray.data.read_text(sources[:60], include_paths=True).write_json(folder)
        back = ray.data.read_json(folder)
        expected = sorted((path, text) for path, text in lines if path in sources[:60])
        assert sorted((row["path"], row["text"]) for row in back.take_all()) == expected


class TestPhotos:
    def test_pixels_are_those_of_pillow(self, crops: tuple[str, dict[str, np.ndarray]]) -> None:
        folder, arrays = crops
        rows = ray.data.read_images(folder, include_paths=True).take_all()
        assert sorted(row["path"] for row in rows) == sorted(arrays)
        for row in rows:
            assert row["image"].dtype == np.uint8
            np.testing.assert_array_equal(row["image"], arrays[row["path"]])

    def test_through_an_actor_into_groups(self, crops: tuple[str, dict[str, np.ndarray]]) -> None:
        folder, arrays = crops

        class Brightness:
            def __init__(self, weights: list[float]) -> None:
                self.weights = np.array(weights)

            def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
                assert batch["image"].shape[1:] == (SIDE, SIDE, 3)
                grey = batch["image"] @ self.weights
                kinds = np.array([pathlib.Path(path).parent.name for path in batch["path"]])
                return {
                    "kind": kinds,
                    "brightness": grey.mean(axis=(1, 2)),
                    "contrast": grey.std(axis=(1, 2)),
                }

        weights = [0.299, 0.587, 0.114]
        found = (
            ray.data.read_images(folder, include_paths=True)
            .map_batches(Brightness, fn_constructor_args=(weights,), batch_size=32, concurrency=2)
            .groupby("kind")
            .mean(["brightness", "contrast"])
            .sort("kind")
            .take_all()
        )
        assert [row["kind"] for row in found] == ["photo=0", "photo=1"]
        for row in found:
            grey = [array @ weights for path, array in arrays.items() if f"/{row['kind']}/" in path]
            assert row["mean(brightness)"] == pytest.approx(np.mean([each.mean() for each in grey]))
            assert row["mean(contrast)"] == pytest.approx(np.mean([each.std() for each in grey]))

    def test_resized_and_grey(self, crops: tuple[str, dict[str, np.ndarray]]) -> None:
        image = pytest.importorskip("PIL.Image")
        folder, arrays = crops
        rows = ray.data.read_images(folder, size=(24, 16), mode="L", include_paths=True).take_all()
        assert len(rows) == CROPS
        for row in rows[::37]:
            assert row["image"].shape == (24, 16)
            with image.open(row["path"]) as opened:
                resized = np.asarray(opened.resize((16, 24), resample=image.BILINEAR).convert("L"))
            np.testing.assert_allclose(row["image"].astype(int), resized.astype(int), atol=1)
        assert {row["path"] for row in rows} == set(arrays)

    def test_the_mean_image_by_batches(self, crops: tuple[str, dict[str, np.ndarray]]) -> None:
        folder, arrays = crops
        total, count = np.zeros((SIDE, SIDE, 3)), 0
        for batch in ray.data.read_images(folder).iter_batches(batch_size=64, drop_last=False):
            total += batch["image"].sum(axis=0)
            count += len(batch["image"])
        assert count == CROPS
        np.testing.assert_allclose(total / count, np.mean(list(arrays.values()), axis=0))

    def test_through_parquet(self, crops: tuple[str, dict[str, np.ndarray]], tmp_path: pathlib.Path) -> None:
        folder, arrays = crops
        target = str(tmp_path / "parquet")
        ray.data.read_images(folder, include_paths=True).write_parquet(target)
        rows = ray.data.read_parquet(target).take_all()
        assert len(rows) == CROPS
        assert all(np.array_equal(row["image"], arrays[row["path"]]) for row in rows)


class TestDigits:
    def test_means_and_deviations_of_groups(self, digits: tuple[Any, str]) -> None:
        frame, folder = digits
        pixels = [name for name in frame if name != "target"]
        grouped = ray.data.read_parquet(folder).groupby("target")
        for kind in ("mean", "std", "min", "max", "sum"):
            found = getattr(grouped, kind)(pixels).to_pandas().set_index("target").sort_index()
            expected = getattr(frame.groupby("target"), kind)()
            np.testing.assert_allclose(
                found[[f"{kind}({name})" for name in pixels]].to_numpy(),
                expected[pixels].to_numpy(),
                atol=1e-9,
            )
        counts = {row["target"]: row["count()"] for row in grouped.count().take_all()}
        assert counts == frame["target"].value_counts().to_dict()

    @pytest.mark.parametrize("name", ["StandardScaler", "MinMaxScaler", "MaxAbsScaler"])
    def test_scalers_do_as_those_of_sklearn(self, digits: tuple[Any, str], name: str) -> None:
        preprocessing = pytest.importorskip("sklearn.preprocessing")
        preprocessors = pytest.importorskip(f"{ray.data.__name__}.preprocessors")
        frame, folder = digits
        pixels = [each for each in frame if each != "target"]
        scaler = getattr(preprocessors, name)(columns=pixels)
        found = scaler.fit_transform(ray.data.read_parquet(folder)).to_pandas()
        expected = getattr(preprocessing, name)().fit_transform(frame[pixels])
        np.testing.assert_allclose(found[pixels].to_numpy(), expected, atol=1e-9)
        assert found["target"].tolist() == frame["target"].tolist()

    def test_a_chain_makes_features_and_labels(self, digits: tuple[Any, str]) -> None:
        preprocessing = pytest.importorskip("sklearn.preprocessing")
        preprocessors = pytest.importorskip(f"{ray.data.__name__}.preprocessors")
        frame, folder = digits
        pixels = [each for each in frame if each != "target"]
        chain = preprocessors.Chain(
            preprocessors.StandardScaler(columns=pixels),
            preprocessors.Concatenator(columns=pixels, output_column_name="features", dtype=np.float32),
            preprocessors.OneHotEncoder(columns=["target"]),
        )
        ds = chain.fit_transform(ray.data.read_parquet(folder))
        features = np.concatenate([batch["features"] for batch in ds.iter_batches(batch_size=200)])
        labels = np.concatenate(
            [np.stack(list(batch["target"])) for batch in ds.iter_batches(batch_size=200)]
        )
        scaled = preprocessing.StandardScaler().fit_transform(frame[pixels])
        np.testing.assert_allclose(features, scaled, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(labels.argmax(axis=1), frame["target"])
        np.testing.assert_array_equal(labels.sum(axis=1), 1)

    def test_a_split_for_training(self, digits: tuple[Any, str]) -> None:
        frame, _ = digits
        numbered = ray.data.from_pandas(frame.assign(n=range(len(frame))))
        border = int(len(frame) * 0.75)  # as Ray rounds
        train, test = numbered.train_test_split(0.25)
        assert [row["n"] for row in test.take_all()] == list(range(border, len(frame)))
        train, test = numbered.train_test_split(0.25, shuffle=True, seed=3)
        parts = [[row["n"] for row in part.take_all()] for part in (train, test)]
        assert sorted(parts[0] + parts[1]) == list(range(len(frame)))
        assert len(parts[1]) == len(frame) - border
        assert parts[1] != sorted(parts[1])

    def test_a_split_with_the_share_of_each_digit(self, digits: tuple[Any, str]) -> None:
        frame, _ = digits
        numbered = ray.data.from_pandas(frame.assign(n=range(len(frame))))
        for test_size in (0.3, 600):
            share = test_size if isinstance(test_size, float) else test_size / len(frame)
            train, test = numbered.train_test_split(test_size, stratify="target")
            counts = frame["target"].value_counts()
            found = {row["target"]: row["count()"] for row in test.groupby("target").count().take_all()}
            assert found == {digit: int(count * share) for digit, count in counts.items()}
            parts = [[row["n"] for row in part.take_all()] for part in (train, test)]
            assert sorted(parts[0] + parts[1]) == list(range(len(frame)))
            assert train.columns() == test.columns() == [*frame, "n"]
        with pytest.raises(ValueError, match="not both"):
            numbered.train_test_split(0.3, shuffle=True, stratify="target")

    def test_nearest_centroids_classify_as_those_of_sklearn(self, digits: tuple[Any, str]) -> None:
        neighbors = pytest.importorskip("sklearn.neighbors")
        frame, _ = digits
        pixels = [each for each in frame if each != "target"]
        train, test = ray.data.from_pandas(frame).repartition(5).train_test_split(400)
        means = train.groupby("target").mean(pixels).sort("target").to_pandas()
        centroids = means[[f"mean({name})" for name in pixels]].to_numpy()

        class Nearest:
            def __init__(self, centroids: np.ndarray) -> None:
                self.centroids = centroids

            def __call__(self, batch: Any) -> Any:
                rows = batch[pixels].to_numpy()
                distances = ((rows[:, None, :] - self.centroids[None]) ** 2).sum(axis=2)
                return batch[["target"]].assign(predicted=distances.argmin(axis=1))

        predicted = test.map_batches(
            Nearest, fn_constructor_args=(centroids,), batch_format="pandas", batch_size=128, concurrency=1
        ).to_pandas()
        known = neighbors.NearestCentroid().fit(frame[pixels][:-400], frame["target"][:-400])
        assert predicted["predicted"].tolist() == known.predict(frame[pixels][-400:]).tolist()
        assert (predicted["predicted"] == predicted["target"]).mean() > 0.8

    def test_groups_as_frames(self, digits: tuple[Any, str]) -> None:
        frame, folder = digits

        def brightest(group: Any) -> Any:
            sums = group.drop(columns="target").sum(axis=1)
            return group.loc[[sums.idxmax()]].assign(brightness=sums.max())[["target", "brightness"]]

        ds = ray.data.read_parquet(folder).groupby("target").map_groups(brightest, batch_format="pandas")
        found = {int(row["target"]): row["brightness"] for row in ds.take_all()}
        sums = frame.drop(columns="target").sum(axis=1)
        assert found == sums.groupby(frame["target"]).max().to_dict()
