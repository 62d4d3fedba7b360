"""Helpers for arrays."""

import numpy as np
from ray.rllib.utils.numpy import fc, huber_loss, l2_loss, one_hot, relu, sigmoid, softmax

print(np.round(softmax(np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])), 4).tolist())
print(relu(np.array([-1.0, 0.0, 2.5])).tolist(), np.round(sigmoid(np.array([-1.0, 0.0, 1.0])), 4).tolist())
print(one_hot(np.array([0, 2, 1]), depth=3).tolist())
print(one_hot(np.array([[1], [0]]), depth=2, on_value=5, off_value=-1).tolist())
print(np.round(huber_loss(np.array([0.5, 2.0, -3.0])), 4).tolist(), float(l2_loss(np.array([1.0, 2.0, 3.0]))))
x, w = np.array([[1.0, 2.0]], np.float32), np.array([[1.0, 0.0, -1.0], [0.5, 1.0, 2.0]], np.float32)
print(fc(x, w, biases=np.array([0.0, 1.0, -1.0], np.float32), framework="np").tolist())
