"""Convex clustering with uniform weights by CVXPY, as its users write it.

Called by `cargo bench --bench convex` with one JSON argument. Reads the points from a file, and prints the times of the
solves and the objective as JSON.
"""

import json
import sys
import time

import cvxpy
import numpy


def main():
    task = json.loads(sys.argv[1])
    points = numpy.fromfile(task["points"], dtype="<f8").reshape(-1, task["dimension"])
    first, second = numpy.triu_indices(len(points), 1)
    solution = cvxpy.Variable(points.shape)
    lengths = cvxpy.norm(solution[first] - solution[second], axis=1)
    problem = cvxpy.Problem(cvxpy.Minimize(0.5 * cvxpy.sum_squares(solution - points) + task["lambda"] * cvxpy.sum(lengths)))
    settings = {"CLARABEL": {}, "SCS": {"eps_abs": 1e-6, "eps_rel": 1e-6, "max_iters": 100_000}}[task["solver"]]

    def solve():
        began = time.perf_counter()
        problem.solve(solver=task["solver"], **settings)
        return time.perf_counter() - began

    # Compiling the problem is not timed: users can keep it for other λ.
    problem.get_problem_data(task["solver"])
    seconds = [solve() for _ in range(task["repetitions"])]
    print(json.dumps({"seconds": seconds, "objective": float(problem.value), "version": cvxpy.__version__}))


main()
