"""Names of what APPO's learners report."""

LEARNER_RESULTS_KL_KEY = "mean_kl_loss"
LEARNER_RESULTS_CURR_KL_COEFF_KEY = "curr_kl_coeff"
LEARNER_RESULTS_MEAN_IS_KEY = "mean_IS"
LEARNER_RESULTS_VAR_IS_KEY = "var_IS"
