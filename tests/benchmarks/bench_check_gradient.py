"""Time `check_gradient` against `tf.test.compute_gradient`, and its growth with the number of elements.

Run it as a script: `python tests/benchmarks/bench_check_gradient.py`. Each time is the best of three calls
in one process, tracing included. `compute_gradient` is called once for n = 10,000, where it takes a minute.
"""

import course_utils.quiet  # noqa: I001
import time

import numpy as np
import tensorflow as tf

from course_utils.gradients import check_gradient, vjp

OPS = {"square": tf.square, "softplus": tf.nn.softplus, "tanh": tf.tanh}


def seconds(f, repeats=3):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return min(times)


def against_compute_gradient(n):
    print(f"{'op':>10} {'n':>7} {'compute_gradient':>17} {'check_gradient':>15} {'ratio':>6}")
    for name, op in OPS.items():
        x = np.random.default_rng(0).standard_normal(n)
        ours = seconds(lambda op=op, x=x: check_gradient(op, x).raise_if_failed())
        theirs = seconds(
            lambda op=op, x=x: tf.test.compute_gradient(op, [tf.constant(x)], delta=1e-5), repeats=1
        )
        print(f"{name:>10} {n:>7} {theirs:>15.3f} s {ours:>13.4f} s {theirs / ours:>5.0f}×")


def growth():
    print(f"\n{'op':>10} {'n':>7} {'one vjp':>12} {'check_gradient':>15} {'ratio':>6}")
    for name, op in OPS.items():
        for n in (1_000, 10_000, 100_000):
            x = tf.constant(np.random.default_rng(0).standard_normal(n))
            one = seconds(lambda op=op, x=x: vjp(op, [x], tf.ones_like(x)), repeats=10)
            ours = seconds(lambda op=op, x=x: check_gradient(op, x).raise_if_failed())
            print(f"{name:>10} {n:>7} {one * 1e3:>9.3f} ms {ours * 1e3:>12.1f} ms {ours / one:>5.0f}×")


if __name__ == "__main__":
    against_compute_gradient(1_000)
    growth()
