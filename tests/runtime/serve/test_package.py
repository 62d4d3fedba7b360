"""The package itself."""

import pickle

import runtime.serve as serve
from runtime import cloudpickle


def test_code_that_names_the_package_can_be_pickled():
    def function():
        return serve.get_multiplexed_model_id()

    assert pickle.loads(cloudpickle.dumps(function))() == ""
    assert pickle.loads(cloudpickle.dumps(serve)) is serve
