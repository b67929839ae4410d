"""Estimators that find families of clients and the model that serves each best, with scikit-learn's conventions."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from . import _kinfolk
from ._kinfolk import Columns, Fitted, FittedMixture, FittedNetworks, Rows
from .conventions import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    check_classification_targets,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)
from .fields import describe
from .frames import cells, is_frame, read_array, read_frame
from .tables import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .mixtures import FamilyMixture

EVERYBODY = "everybody"
"""The one client there is where none are named."""
WORDS = {"column", "outlier", "weights", "client", "apart_by", "served_by", "joining", "added", "model", "of", "term", "class"}
"""Columns of words in a model's files; a client's name may look like a number."""

Model = TypeVar("Model", bound="FamilyEstimator")


@describe(
    p="p-value of \"all clients are alike\"; `None` where too few rows are left to tell.",
    between="The share of what one model for everybody leaves unexplained that lies between clients; NaN of networks.",
)
class Heterogeneity(NamedTuple):
    """Whether clients differ."""

    p: float | None
    between: float


class Text(str):
    """A text that a prompt or a notebook shows as it is."""

    def __repr__(self) -> str:
        return str(self)


class FamilyEstimator(BaseEstimator):
    """What estimators of families have in common."""

    _has_classes: bool
    model_: Fitted | FittedNetworks

    def __init__(
        self,
        *,
        client: str | None = None,
        target: str | None = None,
        model: str | None = None,
        group: str | None = None,
        time: str | None = None,
        part: str | None = None,
        weight: str | None = None,
        drop: Sequence[str] = (),
        words: Sequence[str] = (),
        missing: str = "fill",
        families: int | None = None,
        curves: bool = True,
        interactions: bool = True,
        covariance: str | None = None,
        quick: bool = False,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        self.client = client
        self.target = target
        self.model = model
        self.group = group
        self.time = time
        self.part = part
        self.weight = weight
        self.drop = drop
        self.words = words
        self.missing = missing
        self.families = families
        self.curves = curves
        self.interactions = interactions
        self.covariance = covariance
        self.quick = quick
        self.seed = seed
        self.threads = threads

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Missing numbers are filled in, and marked.
        tags.input_tags.allow_nan = True
        return tags

    def fit(self: Model, X: Any, y: Any = None, clients: Any = None, sample_weight: Any = None) -> Model:
        """Fits rows: `X` is an array of numbers, or a frame of pandas, polars or any library that speaks Arrow.

        `clients` says whose each row is, by names or numbers. Where `client` names a column of the frame, that column
        does, as the column `target` takes the place of `y`. Without either, all rows are one client's. A row whose
        `sample_weight` is 2 counts like one whose noise has half the variance.
        """
        if y is not None and self.target is not None:
            raise ValueError(f"y: the column {self.target!r} is the target already; leave one of them out")
        if clients is not None and self.client is not None:
            raise ValueError(f"clients: the column {self.client!r} names them already; leave one of them out")
        if sample_weight is not None and self.weight is not None:
            raise ValueError(f"sample_weight: the column {self.weight!r} holds weights already; leave one of them out")
        check_consistent_length(X, y, clients)
        if self.target is None:
            if y is None:
                kind = type(self).__name__
                raise ValueError(f"This {kind} estimator requires y to be passed, but the target y is None; target=… names a column")
            values = self._target(y)
        by_name = self.client is not None or self.target is not None
        rows = self._features(X, by_name, reset=True)
        self._check_columns(rows.names)
        client, target = self.client, self.target
        beside: list[tuple[str, Any]] = []
        if client is None:
            client = _name_of(clients, "client", rows.names)
            beside.append((client, _clients(clients, len(rows))))
        if target is None:
            target = _name_of(y, "y", [*rows.names, client])
            beside.append((target, values))
        weight = self.weight
        if sample_weight is not None:
            weight = _name_of(sample_weight, "sample_weight", [*rows.names, client, target])
            beside.append((weight, _weights(sample_weight, len(rows))))
        model = _kinfolk.fit(
            rows.with_columns(beside) if beside else rows,
            client=client,
            target=target,
            classes=self._has_classes,
            model=self.model,
            group=self.group,
            time=self.time,
            part=self.part,
            weight=weight,
            drop=list(self.drop),
            words=list(self.words),
            missing=self.missing,
            families=self.families,
            curves=self.curves,
            interactions=self.interactions,
            covariance=self.covariance,
            quick=self.quick,
            seed=self.seed,
            threads=self.threads,
        )
        self._take(model, by_name)
        return self

    def refit(self: Model, X: Any, y: Any = None, clients: Any = None, sample_weight: Any = None) -> Model:
        """Fits other rows of the clients, and goes on with the families found before: they keep their numbers.

        `show` says what moved: families that are new or gone, clients that came, left or changed their family, and
        coefficients of families that are others by more than two standard errors.
        """
        before = self._fitted()
        chosen = self.model
        # Linear models stay linear, and networks networks: families of one cannot go on with those of the other.
        self.model = chosen or ("mlp" if isinstance(before, FittedNetworks) else "linear")
        try:
            self.fit(X, y, clients, sample_weight)
        finally:
            self.model = chosen
        if isinstance(self.model_, FittedNetworks) and isinstance(before, FittedNetworks):
            self.model_ = self.model_.following(before)
        elif isinstance(self.model_, Fitted) and isinstance(before, Fitted):
            self.model_ = self.model_.following(before)
        return self

    @property
    def families_(self) -> Table:
        """The families: how many clients each has, and what sets it apart."""
        return self._table("families.csv")

    @property
    def clients_(self) -> Table:
        """Every client: its family, what serves it, cross-validated errors, and whether joining pays."""
        return self._table("clients.csv")

    @property
    def coef_(self) -> Table:
        """The coefficients for everybody, of every family and of every client, in the units of the columns."""
        if isinstance(self._fitted(), FittedNetworks):
            raise AttributeError("coef_: networks have no coefficients; effects_ says what columns do, model=\"linear\" has some")
        return self._table("coefficients.csv")

    @property
    def effects_(self) -> Table:
        """Of networks, by how much the prediction changes with each column on average, and how much that differs between rows."""
        if isinstance(self._fitted(), Fitted):
            raise AttributeError("effects_: these are of networks; coef_ has the coefficients of linear models")
        return self._table("effects.csv")

    @property
    def heterogeneity_(self) -> Heterogeneity:
        """Whether clients differ, and by how much."""
        shown = json.loads(self._fitted().shown())
        return Heterogeneity(shown["difference_p"], shown.get("between", float("nan")))

    @property
    def understood_(self) -> list[str]:
        """What was understood of every column, a line each."""
        return self._fitted().understood

    def assign(self, X: Any, y: Any = None, clients: Any = None, *, add: bool = False) -> Table:
        """Clients by rows with their targets: the probability of every family, and whether a client fits none.

        Clients that the model knows stay in their family; of these it is said whether the rows fit there. With `add` the
        model is changed in place: from then on it knows the new ones, and predicts them without targets.
        """
        text, extended = self._fitted().assign(self._rows(X, clients, y), add)
        if extended is not None:
            self.model_ = extended
        said = json.loads(text)
        assigned = said["clients"]
        columns: list[tuple[str, str, list[Any]]] = [
            ("client", "texts", [client["client"] for client in assigned]),
            ("known", "flags", [client["known"] for client in assigned]),
            ("rows", "wholes", [client["rows"] for client in assigned]),
            ("family", "wholes", [client["family"] for client in assigned]),
        ]
        for place, family in enumerate(said["families"]):
            columns.append((f"probability_{family}", "numbers", [client["probabilities"][place] for client in assigned]))
            columns.append((f"distance_{family}", "numbers", [client["distances"][place] for client in assigned]))
        columns.append(("p", "numbers", [client["p"] for client in assigned]))
        columns.append(("fits_none", "flags", [client["fits_none"] for client in assigned]))
        return Table(Columns(columns))

    def show(self, *, family: int | None = None, client: object = None) -> Text:
        """What was found, in words and tables; or one family, or one client."""
        return Text(self._fitted().show(family, None if client is None else str(client)))

    def save(self, folder: str | os.PathLike[str], *, replace: bool = False) -> Path:
        """Writes the folder that `kinfolk fit` writes, for `kinfolk.load` and the command line."""
        path = Path(folder).absolute()
        self._fitted().save(path, replace)
        return path

    def _take(self, model: Fitted | FittedNetworks, by_name: bool) -> None:
        self.model_ = model
        self._by_name = by_name
        if by_name:
            self.n_features_in_ = len(model.columns)
            self.feature_names_in_ = np.array(model.columns, dtype=object)

    def _fitted(self) -> Fitted | FittedNetworks:
        check_is_fitted(self)
        return self.model_

    def _table(self, name: str) -> Table:
        header, *rows = csv.reader(io.StringIO(self._fitted().file(name)))
        return Table(Columns([_column(name, [row[place] for row in rows]) for place, name in enumerate(header)]))

    def _features(self, X: Any, by_name: bool, reset: bool) -> Rows:
        """The rows of X, under the names that the model knows."""
        if by_name:
            if not is_frame(X):
                raise ValueError(f"X: got {type(X).__name__}, want a frame, in which columns have names")
            return read_frame(X)
        if is_frame(X):
            validate_data(self, X, skip_check_array=True, reset=reset)
            return read_frame(X).renamed(self._names())
        least = 2 if reset else 1
        array = validate_data(
            self, X, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=least, reset=reset
        )
        return read_array(array, self._names())

    def _names(self) -> list[str]:
        return list(getattr(self, "feature_names_in_", (f"x{place}" for place in range(self.n_features_in_))))

    def _rows(self, X: Any, clients: Any, y: Any = None) -> Rows:
        """New rows, each with its client; with the target where it is known."""
        model = self._fitted()
        check_consistent_length(X, y, clients)
        rows = self._features(X, self._by_name, reset=False)
        beside: list[tuple[str, Any]] = []
        if model.client not in rows.names:
            if clients is None and model.clients != [EVERYBODY]:
                raise ValueError(
                    f"clients: the model was fitted to {len(model.clients)} clients; say whose rows these are"
                    + (f", by a column {model.client!r} or clients=…" if self._by_name else ", by clients=…")
                )
            beside.append((model.client, _clients(clients, len(rows))))
        elif clients is not None:
            raise ValueError(f"clients: the column {model.client!r} names them already; leave one of them out")
        if y is not None and model.target not in rows.names:
            beside.append((model.target, cells(np.asarray(y))))
        return rows.with_columns(beside) if beside else rows

    def _predict(self, X: Any, clients: Any) -> NDArray[np.float64]:
        return self._fitted().predict(self._rows(X, clients), self.threads, False)[0]

    def _predict_all(self, X: Any, clients: Any) -> tuple[NDArray[np.float64], list[str]]:
        """Predictions, and what serves each row."""
        return self._fitted().predict(self._rows(X, clients), self.threads, True)

    def _scored(self, X: Any, y: Any, clients: Any, weights: Any) -> tuple[Any, NDArray[np.float64], NDArray[np.float64]]:
        """The truth, what is predicted without knowing it, and how much each row counts."""
        rows, target = self._rows(X, clients), self._fitted().target
        if y is None:
            if target not in rows.names:
                raise ValueError(f"y: want the targets, or a column {target!r} in X")
            y = X[target]
        if target in rows.names:
            # Otherwise new clients would be predicted by models of the very values.
            rows = rows.without(target)
        check_consistent_length(X, y, weights)
        counts = np.ones(len(rows)) if weights is None else np.asarray(weights, dtype=np.float64)
        return y, self.model_.predict(rows, self.threads, False)[0], counts

    def _check_columns(self, names: list[str]) -> None:
        """Refuses parameters that name a column which is not there."""
        single = {name: getattr(self, name, None) for name in ("client", "target", "group", "time", "part", "weight")}
        wanted = [(parameter, name) for parameter, name in single.items() if name is not None]
        wanted += [("drop", name) for name in self.drop] + [("words", name) for name in self.words]
        for parameter, name in wanted:
            if name not in names:
                near = get_close_matches(str(name), names, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"its columns are {', '.join(names)}"
                raise ValueError(f"{parameter}: X has no column {name!r}; {hint}")

    def _target(self, y: Any) -> Any:
        raise NotImplementedError


class FamilyRegressor(RegressorMixin, FamilyEstimator):
    """Models of clients that may differ, linear ones or networks: families, and what serves each client best.

    Whether clients differ, whether they fall into families and how many, and which of four models (everybody's, the
    family's, a personal one, the client's own) or which mixture serves a client, is decided from the rows.

    - `client`, `target`: columns of the frame that name the client and hold what is predicted, in place of `clients`
      and `y`; columns are then found by their names, in any order
    - `model`: `linear`, or `mlp` for networks; `None` for linear models, or networks where these are better on held-out
      rows by more than a standard error
    - `group`: the column of families that are known
    - `time`: the column of the rows' times; the last rows of every client are held out and scored
    - `part`: the column that says of every row `train` or `test`
    - `weight`: the column of the rows' weights, in place of `sample_weight`
    - `drop`: columns to leave out; `words`: columns of numbers that are names
    - `missing`: whether to `fill` missing values with the mean, and mark them, or to `refuse` them
    - `families`: how many there are; `None` to find out
    - `curves`: whether numbers may bend, where that predicts better
    - `interactions`: whether products of the two strongest columns with the others may enter, where that predicts better
    - `covariance`: how coefficients vary between clients (`intercept`, `scalar`, `intercept-slopes`, `diagonal`, `full`);
      `None` to find out; `quick`: try no other than one variance for intercepts and one for slopes
    - `seed` of all draws, and `threads` to use: as many as there are cores unless said otherwise

    Fitted, it has `families_`, `clients_` and `coef_` (tables; networks have `effects_` instead), `heterogeneity_`,
    `understood_`, `n_features_in_` and `feature_names_in_`.
    """

    _has_classes = False

    def predict(self, X: Any, clients: Any = None) -> NDArray[np.float64]:
        """What is expected of every row.

        A client that took part is served by its model. A new one whose rows have the target is given a personal model,
        and one without is served by what is known of everybody.
        """
        return self._predict(X, clients)[:, 0]

    def predict_interval(self, X: Any, clients: Any = None) -> NDArray[np.float64]:
        """From where to where 90 % of such rows are: two columns, low and high."""
        return self._predict(X, clients)[:, 1:]

    def predict_table(self, X: Any, clients: Any = None) -> Table:
        """What `kinfolk predict` writes: prediction, low, high and served_by, a row for every row."""
        values, served_by = self._predict_all(X, clients)
        names = ("prediction", "low", "high")
        columns = [(name, "numbers", column.tolist()) for name, column in zip(names, values.T, strict=True)]
        return Table(Columns([*columns, ("served_by", "texts", served_by)]))

    def score(self, X: Any, y: Any = None, clients: Any = None, sample_weight: Any = None) -> float:
        """The share of the variance that predictions explain (R²). Where `target` names a column, `y` may be left out."""
        truth, values, weights = self._scored(X, y, clients, sample_weight)
        truth = np.asarray(truth, dtype=np.float64)
        known = ~np.isnan(truth)
        truth, predicted, weights = truth[known], values[known, 0], weights[known]
        spread = np.sum(weights * (truth - np.average(truth, weights=weights)) ** 2)
        return float(1 - np.sum(weights * (truth - predicted) ** 2) / spread) if spread > 0 else float("nan")

    def _target(self, y: Any) -> Any:
        return validate_data(self, y=y, y_numeric=True).astype(np.float64)


class FamilyClassifier(ClassifierMixin, FamilyEstimator):
    """Logistic models or networks of clients that may differ: families, and what serves each client best.

    Decided as `FamilyRegressor` decides; with more than two classes models are multinomial.

    Parameters and what it has when fitted are as there, and `classes_`.
    """

    _has_classes = True

    def fit(self, X: Any, y: Any = None, clients: Any = None, sample_weight: Any = None) -> FamilyClassifier:
        """Fits rows, as `FamilyRegressor.fit` does; `y` are the classes, of any kind."""
        if sample_weight is not None and y is not None:
            labels = np.asarray(y)
            if len(np.unique(labels[_weights(sample_weight, len(labels)) > 0])) == 1:
                raise ValueError("y: got one class in rows with a weight above 0, want at least two")
        super().fit(X, y, clients, sample_weight)
        labels = np.asarray(X[self.target] if y is None else y).ravel()
        if labels.dtype.kind == "O":
            labels = labels[[cell is not None for cell in cells(labels)]]
        self._name_classes(np.unique(labels))
        return self

    def predict(self, X: Any, clients: Any = None) -> NDArray[Any]:
        """The most probable class of every row."""
        most_probable = self.predict_proba(X, clients).argmax(1)
        return np.asarray(self.classes_[most_probable])

    def predict_proba(self, X: Any, clients: Any = None) -> NDArray[np.float64]:
        """The probability of every class, in the order of `classes_`."""
        probabilities = self._predict(X, clients)
        return probabilities[:, self._order]

    def predict_table(self, X: Any, clients: Any = None) -> Table:
        """What `kinfolk predict` writes: prediction, the probability of every class and served_by, a row for every row."""
        values, served_by = self._predict_all(X, clients)
        classes = self.model_.classes
        prediction = [classes[place] for place in values.argmax(1)]
        columns = [(f"p({name})", "numbers", column.tolist()) for name, column in zip(classes, values.T, strict=True)]
        return Table(Columns([("prediction", "texts", prediction), *columns, ("served_by", "texts", served_by)]))

    def score(self, X: Any, y: Any = None, clients: Any = None, sample_weight: Any = None) -> float:
        """The share of rows whose class is predicted. Where `target` names a column, `y` may be left out."""
        truth, values, weights = self._scored(X, y, clients, sample_weight)
        is_right = self.classes_[values[:, self._order].argmax(1)] == np.asarray(truth)
        return float(np.average(is_right, weights=weights))

    def _target(self, y: Any) -> Any:
        y = validate_data(self, y=y)
        check_classification_targets(y)
        if len(np.unique(y)) < 2:
            raise ValueError("y: got one class, want at least two")
        return cells(y)

    def _name_classes(self, labels: NDArray[Any]) -> None:
        """Tells the model's classes, which are texts, by the values that stand for them."""
        if labels.dtype.kind in "iuf":
            places = {float(name): place for place, name in enumerate(self.model_.classes)}
            found = [places.get(float(label)) for label in labels]
        else:
            by_text = {name: place for place, name in enumerate(self.model_.classes)}
            found = [by_text.get(str(text)) for text in cells(labels)]
        # A class of test rows alone is none that could be predicted.
        self.classes_: NDArray[Any] = labels[[place is not None for place in found]]
        self._order = [place for place in found if place is not None]


def load_fitted(folder: str | os.PathLike[str]) -> FamilyRegressor | FamilyClassifier | FamilyMixture:
    """The fitted model in a folder that `kinfolk fit` or `save` has written."""
    model = _kinfolk.read_fitted(Path(folder))
    if isinstance(model, FittedMixture):
        from .mixtures import of_model

        return of_model(model)
    by_name = model.columns != [f"x{place}" for place in range(len(model.columns))]
    client, target = (model.client, model.target) if by_name else (None, None)
    kind = FamilyClassifier if model.classes else FamilyRegressor
    estimator = kind(client=client, target=target, model="mlp" if isinstance(model, FittedNetworks) else None)
    estimator.n_features_in_ = len(model.columns)
    estimator._take(model, by_name)
    if isinstance(estimator, FamilyClassifier):
        estimator._name_classes(_values(model.classes))
    return estimator


def _values(texts: list[str]) -> NDArray[Any]:
    """Numbers, if all texts are."""
    try:
        numbers = np.array([float(text) for text in texts])
    except ValueError:
        return np.array(texts)
    return numbers.astype(np.int64) if np.all(numbers == np.floor(numbers)) else numbers


def _name_of(values: Any, usual: str, taken: Sequence[str]) -> str:
    """What a series calls itself, where no other column is called so; or else the usual name."""
    own = getattr(values, "name", None)
    if isinstance(own, str) and own and own not in taken:
        return own
    while usual in taken:
        usual += "_"
    return usual


def _clients(clients: Any, rows: int) -> Any:
    if clients is None:
        return [EVERYBODY] * rows
    try:
        return cells(clients)
    except ValueError as error:
        raise ValueError(f"clients: {error}") from None


def _weights(weights: Any, rows: int) -> NDArray[np.float64]:
    numbers: NDArray[np.float64] = np.asarray(weights, dtype=np.float64)
    if numbers.ndim == 0:
        numbers = np.full(rows, numbers)
    if numbers.shape != (rows,):
        raise ValueError(f"sample_weight: got the shape {numbers.shape}, want ({rows},)")
    if rows and not np.any(numbers):
        raise ValueError("sample_weight: all are zero; want some above")
    if not np.all(np.isfinite(numbers)) or np.any(numbers < 0):
        raise ValueError("sample_weight: got negative or infinite numbers, or NaN; want numbers of at least 0")
    return numbers


def _column(name: str, texts: list[str]) -> tuple[str, str, list[Any]]:
    """A column of a file as numbers, if its cells are."""
    if name in WORDS:
        return name, "texts", texts
    if all(text.isdecimal() for text in texts):
        return name, "wholes", [int(text) for text in texts]
    return name, "numbers", [float(text) if text else None for text in texts]
