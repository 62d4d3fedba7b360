"""Tasks that do not know how many results they will have: dynamic returns and streams."""

import ray
from ray import ObjectRefGenerator

ray.init(num_cpus=4)


@ray.remote(num_returns="dynamic")
def split(text):
    for word in text.split():
        yield word


@ray.remote
def stream(text):
    for word in text.split():
        yield word


@ray.remote(num_returns=3)
def exactly_three(n):
    for i in range(n):
        yield i


@ray.remote
def length(word):
    return len(word)


@ray.remote
def lengths_of(generator):
    return [len(ray.get(ref)) for ref in generator]


text = "a dynamic number of words"
ref = split.remote(text)
print(type(ref).__name__)
generator = ray.get(ref)
refs = list(generator)
print([ray.get(r) for r in refs], len(refs))
print([ray.get(length.remote(r)) for r in refs])
print("passed on:", ray.get(lengths_of.remote(ref)))
print("options:", [ray.get(r) for r in ray.get(stream.options(num_returns="dynamic").remote("x y"))])

gen = stream.remote(text)
print(isinstance(gen, ObjectRefGenerator))
print([ray.get(r) for r in gen])
print("an empty one:", list(stream.remote("")))

print(ray.get(exactly_three.remote(3)))
try:
    ray.get(exactly_three.remote(2))
except Exception as error:
    print("too few:", isinstance(error, ValueError))


@ray.remote
def not_a_generator():
    return 1


try:
    ray.get(not_a_generator.options(num_returns="streaming").remote())
except Exception as error:
    print("not a generator:", isinstance(error, (TypeError, ValueError)))
