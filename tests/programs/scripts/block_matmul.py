"""Matrix multiplication by blocks: the graph of tasks is built first, then one get."""

import numpy as np
import ray

ray.init(num_cpus=4)

BLOCK = 40


class BlockMatrix:
    """A grid of references to blocks."""

    def __init__(self, blocks):
        self.blocks = blocks

    @classmethod
    def from_array(cls, array):
        rows, columns = (n // BLOCK for n in array.shape)
        return cls(
            [
                [
                    ray.put(array[i * BLOCK : (i + 1) * BLOCK, j * BLOCK : (j + 1) * BLOCK])
                    for j in range(columns)
                ]
                for i in range(rows)
            ]
        )

    def __matmul__(self, other):
        inner = len(other.blocks)
        return BlockMatrix(
            [
                [
                    add.remote(
                        *[multiply.remote(self.blocks[i][k], other.blocks[k][j]) for k in range(inner)]
                    )
                    for j in range(len(other.blocks[0]))
                ]
                for i in range(len(self.blocks))
            ]
        )

    @property
    def T(self):
        rows, columns = len(self.blocks), len(self.blocks[0])
        return BlockMatrix(
            [[transpose.remote(self.blocks[i][j]) for i in range(rows)] for j in range(columns)]
        )

    def to_array(self):
        return np.block([ray.get(row) for row in self.blocks])


@ray.remote
def multiply(a, b):
    return a @ b


@ray.remote
def add(*parts):
    return sum(parts)


@ray.remote
def transpose(a):
    return a.T


rng = np.random.default_rng(11)
a = rng.integers(-5, 5, size=(120, 80)).astype(float)
b = rng.integers(-5, 5, size=(80, 160)).astype(float)
A, B = BlockMatrix.from_array(a), BlockMatrix.from_array(b)

print("product:", (A @ B).to_array().shape, np.array_equal((A @ B).to_array(), a @ b))
print("transposed:", np.array_equal(A.T.to_array(), a.T))
gram = (A.T @ A).to_array()
print("gram:", np.array_equal(gram, a.T @ a), "symmetric:", np.array_equal(gram, gram.T))
print("trace:", np.trace(gram))
