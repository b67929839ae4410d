"""Objective values of convex clustering on random problems, by a general conic solver.

    pip install cvxpy==1.9.3 clarabel==0.11.1 numpy
    python crates/kinfolk/tests/reference/convex.py > crates/kinfolk/tests/reference/convex.json

The problems are kept beside the values, so that the tests need no Python.
"""

import json
import sys

import cvxpy
import numpy


def solve(points, edges, strength):
    solution = cvxpy.Variable(points.shape)
    ends = numpy.array([[i, j] for i, j, _ in edges])
    weights = numpy.array([weight for _, _, weight in edges])
    lengths = cvxpy.norm(solution[ends[:, 0]] - solution[ends[:, 1]], axis=1)
    problem = cvxpy.Problem(cvxpy.Minimize(0.5 * cvxpy.sum_squares(solution - points) + strength * weights @ lengths))
    problem.solve(solver=cvxpy.CLARABEL, tol_gap_rel=1e-8, tol_gap_abs=1e-8, tol_feas=1e-8)
    assert problem.status == "optimal", problem.status
    return problem.value


def main():
    random = numpy.random.default_rng(20)
    problems = []
    for count, dimension, kind in [(2, 1, "uniform"), (5, 2, "uniform"), (12, 3, "uniform"), (20, 1, "uniform"),
                                   (16, 6, "uniform"), (24, 2, "uniform"), (6, 2, "sparse"), (12, 3, "sparse"),
                                   (20, 1, "sparse"), (24, 2, "sparse"), (18, 5, "sparse")]:
        centres = 3 * random.standard_normal((3, dimension))
        points = centres[numpy.arange(count) % 3] + random.standard_normal((count, dimension))
        points = numpy.round(points, 3)
        pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
        if kind == "uniform":
            edges = [(i, j, 1.0) for i, j in pairs]
            scales = [0.02, 0.3, 0.6, 0.9, 1.3]
            unit = numpy.linalg.norm(points - points.mean(0), axis=1).max() / count
        else:
            edges = [(i, j, round(float(random.uniform(0.05, 1)), 3)) for i, j in pairs if j == i + 1 or random.random() < 0.25]
            scales = [0.03, 0.2, 0.5, 1.0, 3.0]
            unit = 1.0
        for scale in scales:
            strength = round(float(scale * unit), 6)
            problems.append({
                "dimension": dimension,
                "points": points.ravel().tolist(),
                "edges": None if kind == "uniform" else edges,
                "lambda": strength,
                "objective": solve(points, edges, strength),
            })
    print("[\n" + ",\n".join(json.dumps(problem) for problem in problems) + "\n]")
    print(f"cvxpy {cvxpy.__version__}", file=sys.stderr)


main()
