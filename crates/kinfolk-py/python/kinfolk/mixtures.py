"""An estimator that finds kinds of rows, and which clients have how many of which, with scikit-learn's conventions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from . import _kinfolk
from ._kinfolk import Columns, FittedMixture
from .conventions import DensityMixin, check_consistent_length
from .families import FamilyEstimator, _clients, _name_of
from .fields import describe
from .tables import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray


@describe(
    weights="p-value of \"components occur equally often at all clients\"; `None` where that cannot be told.",
    centres="p-value of \"components are at the same place at all clients\".",
)
class MixtureHeterogeneity(NamedTuple):
    """Whether clients differ."""

    weights: float | None
    centres: float | None


class FamilyMixture(DensityMixin, FamilyEstimator):
    """A mixture of normal distributions for rows of clients that may differ: kinds of rows, and who has how many of which.

    How many components there are, whether clients differ in how often they occur, whether they fall into families, which are
    outliers, and what serves each client, is decided from the rows.

    - `client`: the column of the frame that names the client, in place of `clients`
    - `group`: the column of families that are known
    - `time`, `part`: columns by which rows are held out, as in `FamilyRegressor`
    - `drop`: columns to leave out
    - `components`, `families`: how many there are; `None` to find out
    - `seed` of all draws, and `threads` to use: as many as there are cores unless said otherwise

    Fitted, it has `weights_`, `means_` and `covariances_` of the components in the units of the columns, `components_`,
    `families_` and `clients_` (tables), `heterogeneity_`, `understood_`, `n_features_in_` and `feature_names_in_`.
    """

    target = None
    words: Sequence[str] = ()

    def __init__(
        self,
        *,
        client: str | None = None,
        group: str | None = None,
        time: str | None = None,
        part: str | None = None,
        drop: Sequence[str] = (),
        components: int | None = None,
        families: int | None = None,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        self.client = client
        self.group = group
        self.time = time
        self.part = part
        self.drop = drop
        self.components = components
        self.families = families
        self.seed = seed
        self.threads = threads

    def fit(self, X: Any, y: Any = None, clients: Any = None) -> FamilyMixture:  # type: ignore[override]
        """Fits rows: `X` is an array of numbers, or a frame of pandas, polars or any library that speaks Arrow.

        `clients` says whose each row is, by names or numbers, or else the column `client` of the frame. Without either, all
        rows are one client's. `y` is not used.
        """
        if clients is not None and self.client is not None:
            raise ValueError(f"clients: the column {self.client!r} names them already; leave one of them out")
        check_consistent_length(X, clients)
        by_name = self.client is not None
        rows = self._features(X, by_name, reset=True)
        self._check_columns(rows.names)
        client = self.client
        if client is None:
            client = _name_of(clients, "client", rows.names)
            rows = rows.with_columns([(client, _clients(clients, len(rows)))])
        model = _kinfolk.fit_mixture(
            rows,
            client=client,
            group=self.group,
            time=self.time,
            part=self.part,
            drop=list(self.drop),
            families=self.families,
            components=self.components,
            seed=self.seed,
            threads=self.threads,
        )
        self._take_mixture(model, by_name)
        return self

    def predict(self, X: Any, clients: Any = None) -> NDArray[np.int64]:
        """The most probable component of every row, counted from 0 as in `means_`."""
        return np.asarray(np.argmax(self.predict_proba(X, clients), axis=1))

    def predict_proba(self, X: Any, clients: Any = None) -> NDArray[np.float64]:
        """The probability of every component."""
        return self._predict(X, clients)[:, :-2]

    def score_samples(self, X: Any, clients: Any = None) -> NDArray[np.float64]:
        """The log density of every row, in what serves its client."""
        return self._predict(X, clients)[:, -2]

    def predict_outliers(self, X: Any, clients: Any = None) -> NDArray[np.bool_]:
        """Whether a row's density is below that of 99 % of the rows it was fitted to."""
        return self._predict(X, clients)[:, -1] > 0

    def score(self, X: Any, y: Any = None, clients: Any = None) -> float:
        """The mean log density of rows."""
        return float(np.mean(self.score_samples(X, clients)))

    def predict_table(self, X: Any, clients: Any = None) -> Table:
        """What `kinfolk predict` writes: component, counted from 1, probabilities, log_density, outlier and served_by."""
        values, served_by = self._fitted().predict(self._rows(X, clients), self.threads)
        columns: list[tuple[str, str, list[Any]]] = [
            ("component", "wholes", (1 + np.argmax(values[:, :-2], axis=1)).tolist())
        ]
        columns += [(f"p({place + 1})", "numbers", column.tolist()) for place, column in enumerate(values[:, :-2].T)]
        columns.append(("log_density", "numbers", values[:, -2].tolist()))
        columns.append(("outlier", "flags", (values[:, -1] > 0).tolist()))
        return Table(Columns([*columns, ("served_by", "texts", served_by)]))

    def assign(self, X: Any, y: Any = None, clients: Any = None, *, add: bool = False) -> Table:
        """New clients, from their rows: the probability of every family, and whether a client fits none. `y` is not used."""
        return super().assign(X, None, clients, add=add)

    def refit(self, X: Any, y: Any = None, clients: Any = None, sample_weight: Any = None) -> NoReturn:
        """Is for models of a target: families of a mixture are found anew by every fit."""
        raise ValueError("refit: got a mixture, want a model of a target; fit the rows instead")

    @property
    def components_(self) -> Table:
        """The components: weight, and of every column mean and standard deviation."""
        return self._table("components.csv")

    @property
    def coef_(self) -> Table:
        raise AttributeError("a mixture has no coefficients; means_ and covariances_ are its parameters")

    @property
    def effects_(self) -> Table:
        raise AttributeError("a mixture predicts no target that columns could have an effect on")

    @property
    def heterogeneity_(self) -> MixtureHeterogeneity:  # type: ignore[override]
        """Whether clients differ: in how often components occur, and in where they are."""
        shown = json.loads(self._fitted().shown())
        return MixtureHeterogeneity(shown["weights_p"], shown["centres_p"])

    def _predict(self, X: Any, clients: Any) -> NDArray[np.float64]:
        return np.asarray(self._fitted().predict(self._rows(X, clients), self.threads)[0])

    def _fitted(self) -> Any:
        return super()._fitted()

    def _take_mixture(self, model: FittedMixture, by_name: bool) -> None:
        self._take(model, by_name)  # type: ignore[arg-type]
        self.weights_, self.means_, self.covariances_ = model.components()


def of_model(model: FittedMixture) -> FamilyMixture:
    """The estimator of a model that was read from a folder."""
    by_name = model.columns != [f"x{place}" for place in range(len(model.columns))]
    estimator = FamilyMixture(client=model.client if by_name else None)
    estimator.n_features_in_ = len(model.columns)
    estimator._take_mixture(model, by_name)
    return estimator
