"""`kinfolk.cluster`: what it takes, what it refuses, and measures by hand."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import numpy as np
import pytest

import kinfolk
from kinfolk import cluster

SQUARE = np.array([[0.0, 0.0], [0.0, 1.0], [10.0, 0.0], [10.0, 1.0]])


@pytest.mark.parametrize(
    "points",
    [
        SQUARE.tolist(),
        SQUARE.astype(np.int8),
        SQUARE.astype(np.float32),
        np.asfortranarray(SQUARE),
        np.repeat(SQUARE, 2, axis=0)[::2],
        SQUARE > 100,
    ],
    ids=["list", "int8", "float32", "columns first", "every second row", "bool"],
)
def test_any_array_of_numbers(points: Any) -> None:
    found = cluster.convex(points, 0.0)
    assert np.array_equal(found.centres[found.labels], np.asarray(points, dtype=float))
    assert found.labels.dtype == np.int64


def test_what_is_found() -> None:
    found = cluster.kmeans(SQUARE, clusters=2)
    assert found.labels.tolist() == [0, 0, 1, 1]
    assert found.centres.tolist() == [[0.0, 0.5], [10.0, 0.5]]
    assert found.sizes.tolist() == [2, 2]
    assert (found.lambda_, found.certificate, found.path, found.sureness) == (None, None, None, None)
    path = cluster.clusterpath(SQUARE, path_values=7).path
    assert path is not None
    assert path.labels.shape == (7, 4) and path.plane.shape == (7, 4, 2)
    assert path.clusters.tolist() == [len(set(labels)) for labels in path.labels.tolist()]
    found = cluster.convex(SQUARE, lambda_=np.inf)
    assert found.sizes.tolist() == [4] and found.notes == ("all points are one cluster",)


@pytest.mark.parametrize(
    ("points", "kind", "message"),
    [
        ([1.0, 2.0], "shape", "points: got the shape (2,), want two dimensions: one row a point"),
        (np.zeros((2, 2, 2)), "shape", "points: got the shape (2, 2, 2), want two dimensions"),
        (np.empty((0, 3)), "data", "points: got none, want at least one point"),
        (np.empty((3, 0)), "data", "points: got none, want at least one point"),
        ([[1.0], [np.nan]], "data", "points: row 2, column 1: got NaN"),
        ([[np.inf]], "data", "points: row 1, column 1: got inf"),
        ([["a"]], "data", "points: got the type <U1, want an array of numbers"),
        ([[1j]], "data", "points: got the type complex128, want an array of numbers"),
        ([[1.0, 2.0], [3.0]], "data", "points: got setting an array element with a sequence"),
        (None, "data", "points: got the type object, want an array of numbers"),
    ],
)
def test_points_that_are_none(points: Any, kind: str, message: str) -> None:
    for find in (cluster.kmeans, cluster.auto, cluster.convex):
        with pytest.raises(kinfolk.Error) as caught:
            find(points)
        assert caught.value.kind == kind
        assert str(caught.value).startswith(message)


def test_all_faults_at_once() -> None:
    with pytest.raises(kinfolk.Error) as caught:
        cluster.convex(SQUARE, -1, weights="all", path_values=1, threads=0)
    assert str(caught.value) == (
        "4 faults\n"
        "- threads: got 0, want a whole number from 1 to 1024\n"
        "- lambda: got -1, want a number of at least 0, or inf\n"
        "- path_values: got 1, want at least 2\n"
        '- weights: got "all", want one of uniform, neighbours'
    )
    for clusters, message in ((-2, "got -2, want at least 1"), (0, "got 0, want at least 1"), (5, "got 5, want at most 4")):
        with pytest.raises(kinfolk.Error, match=f"^clusters: {message}"):
            cluster.kmeans(SQUARE, clusters)
    with pytest.raises(kinfolk.Error, match="^neighbours: wants weights neighbours"):
        cluster.convex(SQUARE, neighbours=3)


def test_measures_by_hand() -> None:
    # Together 2, in found 3 + 3, in truth 1 + 1 + 1, all 15: (2 - 1.2) / (4.5 - 1.2).
    assert cluster.ari([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2]) == pytest.approx(0.8 / 3.3)
    assert cluster.misclustering([5, 5, 5, 5, 9, 9], [1, 1, 1, 0, 0, 0]) == pytest.approx(1 / 6)
    assert cluster.matching([5, 5, 5, 5, 9, 9], np.array([1, 1, 1, 0, 0, 0.0])) == {5: 1, 9: 0}
    labels = [0, 0, 1, 1]
    # Centres are 10 apart, radii 0.5.
    assert cluster.separability(SQUARE, labels) == (20.0, 2 + 200 * np.sqrt(2), 4.0)
    # Diameters 1 over 2 points; 10 over 8 - 2 - 2.
    assert cluster.recovery_interval(SQUARE, labels) == (0.5, 2.5)
    within, beside = 1.0, (10 + np.sqrt(101)) / 2
    assert cluster.silhouette(SQUARE, labels) == pytest.approx((beside - within) / beside)
    # What is around the centres: ‖A − C‖ = 1 and ‖A − C‖_F = 1, so Δ = 1 / √2 for both.
    assert cluster.centre_separation(SQUARE, labels) == pytest.approx(10 / np.sqrt(2))
    assert cluster.proximity(SQUARE, labels, 1.0) == pytest.approx((10 / np.sqrt(2), 1.0))
    alone = [0, 0, 0, 0]
    assert [cluster.separability(SQUARE, alone), cluster.silhouette(SQUARE, alone)] == [None, None]


def test_labels_that_are_none() -> None:
    with pytest.raises(kinfolk.Error, match="truth: got 2 labels, want 3, as many as found has"):
        cluster.ari([0, 1, 1], [0, 1])
    with pytest.raises(kinfolk.Error, match="found: got -2 at place 1, want whole numbers of at least 0, or -1"):
        cluster.misclustering([0, -2], [0, 1])
    with pytest.raises(kinfolk.Error, match="found: got NaN at place 0"):
        cluster.misclustering([np.nan, 1], [0, 1])
    with pytest.raises(kinfolk.Error, match=r"found: got the shape \(1, 2\), want one dimension"):
        cluster.ari([[0, 1]], [0, 1])
    with pytest.raises(kinfolk.Error, match="labels: got 3, want 4, one for every point"):
        cluster.silhouette(SQUARE, [0, 0, 1])


def test_a_search_is_left_at_once() -> None:
    points = np.random.default_rng(0).normal(size=(3000, 20))
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        cluster.clusterpath(points, path_values=5000)


def test_points_set_aside_have_the_label_minus_one() -> None:
    random = np.random.default_rng(0)
    clusters = np.concatenate([random.normal(place, 1.0, (30, 2)) for place in (0.0, 12.0)])
    points = np.concatenate([clusters, [[40.0, -40.0], [-45.0, 50.0]]])
    found = cluster.auto(points)
    assert found.labels[60:].tolist() == [-1, -1]
    assert found.sizes.tolist() == [30, 30]
    assert found.centres == pytest.approx(np.array([clusters[:30].mean(0), clusters[30:].mean(0)]))
    assert "2 points fit no cluster and are set aside" in found.notes
    # Measures leave them out, comparisons take them for one more cluster.
    kept = cluster.silhouette(clusters, found.labels[:60])
    assert kept is not None and cluster.silhouette(points, found.labels) == kept
    assert cluster.matching(found.labels, [0] * 30 + [1] * 30 + [2, 2]) == {0: 0, 1: 1, -1: 2}
