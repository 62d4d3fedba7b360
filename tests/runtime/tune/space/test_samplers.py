import math
import random
from collections import Counter

import pytest

from runtime.tune.search import sample
from runtime.tune.search.sample import Categorical, Domain, Float, Function, Integer, Quantized

DRAWS = 2000


def draws(domain, seed=3):
    return domain.sample(size=DRAWS, random_state=seed)


@pytest.mark.parametrize(
    ("domain", "low", "high", "kind"),
    [
        (sample.uniform(-3, 5), -3, 5, float),
        (sample.quniform(-1, 1, 0.25), -1, 1, float),
        (sample.loguniform(1e-4, 1e-1), 1e-4, 1e-1, float),
        (sample.qloguniform(0.1, 10, 0.1), 0.1, 10, float),
        (sample.randint(-2, 7), -2, 6, int),
        (sample.qrandint(0, 20, 4), 0, 20, int),
        (sample.lograndint(1, 100), 1, 99, int),
        (sample.qlograndint(2, 64, 2), 2, 64, int),
    ],
)
def test_numbers_stay_within_their_bounds_and_reach_them(domain, low, high, kind):
    values = draws(domain)
    assert all(type(value) is kind for value in values)
    assert low <= min(values) <= max(values) <= high + 1e-12
    spread = high - low
    assert max(values) > high - 0.15 * spread
    assert min(values) < low + 0.15 * spread


def test_all_integers_of_a_range_are_drawn_about_equally_often():
    counts = Counter(draws(sample.randint(0, 8)))
    assert set(counts) == set(range(8))
    assert max(counts.values()) < 1.5 * min(counts.values())


def test_quantized_integers_are_equally_likely_and_include_the_upper_bound():
    counts = Counter(draws(sample.qrandint(4, 21, 4)))
    assert set(counts) == {4, 8, 12, 16, 20}
    assert max(counts.values()) < 1.5 * min(counts.values())
    assert set(draws(sample.qrandint(0, 4, 4))) == {0, 4}


def test_a_quantization_of_one_keeps_the_upper_bound_exclusive():
    assert set(draws(sample.qrandint(0, 3, 1))) == {0, 1, 2}


@pytest.mark.parametrize(
    ("domain", "q"),
    [(sample.quniform(0, 1, 0.1), 0.1), (sample.qrandn(0, 5, 0.5), 0.5), (sample.qrandint(3, 30, 3), 3)],
)
def test_quantized_values_are_multiples(domain, q):
    assert all(math.isclose(value / q, round(value / q), abs_tol=1e-9) for value in draws(domain))


def test_log_uniform_samples_have_their_median_at_the_geometric_mean():
    values = sorted(draws(sample.loguniform(1e-4, 1)))
    assert 0.5e-2 < values[DRAWS // 2] < 2e-2
    integers = sorted(draws(sample.lograndint(1, 10_001)))
    assert 50 < integers[DRAWS // 2] < 200


def test_normal_samples_have_their_mean_and_deviation():
    values = draws(sample.randn(10, 2))
    mean = sum(values) / DRAWS
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / DRAWS)
    assert abs(mean - 10) < 0.2
    assert abs(deviation - 2) < 0.2


def test_a_log_uniform_integer_never_leaves_its_bounds_by_rounding():
    for lower in range(1, 60):
        assert sample.lograndint(lower, lower + 1).sample(random_state=lower) == lower


def test_choices_keep_the_types_of_their_values():
    values = draws(sample.choice([1, "a", None, (1, 2)]))
    assert {type(value) for value in values} == {int, str, type(None), tuple}


@pytest.mark.parametrize(
    "domain", [sample.uniform(0, 1), sample.randint(0, 100), sample.choice(list(range(50)))]
)
def test_one_seed_gives_the_same_samples(domain):
    assert draws(domain, 5) == draws(domain, 5)
    assert draws(domain, 5) != draws(domain, 6)
    source = random.Random(5)
    assert [domain.sample(random_state=source) for _ in range(DRAWS)] == draws(domain, 5)


def test_numpy_generators_may_be_handed_in():
    numpy = pytest.importorskip("numpy")
    for make in (numpy.random.default_rng, numpy.random.RandomState):
        for domain in (sample.uniform(0, 1), sample.randint(0, 9), sample.randn(), sample.choice("abc")):
            values = domain.sample(size=20, random_state=make(1))
            assert values == domain.sample(size=20, random_state=make(1))
            assert type(values[0]) in (float, int, str)


def test_a_source_that_is_none_is_refused():
    with pytest.raises(TypeError, match="random_state must be"):
        sample.uniform(0, 1).sample(random_state="seven")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sample.uniform(2, 1), "lower.*greater than.*upper"),
        (lambda: sample.uniform(None, 1), "finite `lower`"),
        (lambda: sample.uniform(0, math.inf), "finite `upper`"),
        (lambda: sample.loguniform(0, 1), "`lower` bound greater than 0"),
        (lambda: sample.lograndint(0, 5), "`lower` bound greater than 0"),
        (lambda: sample.loguniform(-9, -1), "not their logarithms"),
        (lambda: sample.quniform(0, 1, 0.3), "`upper` bound 1 is not a multiple"),
        (lambda: sample.quniform(0.1, 0.6, 0.3), "`lower` bound 0.1 is not a multiple"),
        (lambda: sample.quniform(0, 1, 0), "`q` must be greater than 0"),
        (lambda: sample.randint(5, 5), "less than `upper`, which is exclusive"),
        (lambda: sample.qrandint(5, 7, 4), "no multiple of q=4"),
        (lambda: sample.randn(0, 0), "`sd` must be greater than 0"),
        (lambda: sample.choice([]), "at least one value"),
        (lambda: sample.sample_from(lambda a, b: 1), "one argument or none"),
        (lambda: sample.sample_from(3), "needs a function"),
    ],
)
def test_wrong_bounds_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_domains_say_what_is_valid_and_how_they_are_sampled():
    assert sample.uniform(0, 1).is_valid(0.5)
    assert not sample.randint(0, 4).is_valid(7)
    assert sample.choice("ab").is_valid("b")
    assert sample.choice("ab").domain_str == "['a', 'b']"
    assert isinstance(sample.quniform(0, 1, 0.5).get_sampler(), Quantized)
    assert Categorical([1, 2]).grid().is_grid()
    assert Function(lambda: 1).is_function()
    with pytest.raises(ValueError, match="cannot have"):
        sample.uniform(0, 1).set_sampler(sample.Uniform())


def test_methods_of_a_domain_leave_it_as_it_is():
    domain = Float(0, 1)
    assert domain.uniform() is not domain
    assert domain.sampler is None
    assert 0 <= domain.sample(random_state=1) <= 1
    assert 1 <= Integer(1, 9).sample(random_state=1) <= 8


def test_the_base_of_logarithms_is_deprecated():
    with pytest.warns(DeprecationWarning, match="no effect"):
        sample.loguniform(1, 10, base=2)


def test_users_may_write_samplers_and_domains():
    class Middle(sample.Sampler):
        def sample(self, domain, config=None, size=1, random_state=None):
            return (domain.lower + domain.upper) / 2

    class Always(Domain):
        def sample(self, config=None, size=1, random_state=None):
            return "always"

    middle = Float(0, 4)
    middle.set_sampler(Middle())
    assert middle.sample() == 2
    assert Always().sample() == "always"
