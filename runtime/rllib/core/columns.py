"""Names of the columns of a batch."""

from __future__ import annotations


class Columns:
    """The keys under which batches, rollouts and a module's outputs hold their arrays."""

    OBS = "obs"
    INFOS = "infos"
    ACTIONS = "actions"
    REWARDS = "rewards"
    TERMINATEDS = "terminateds"
    TRUNCATEDS = "truncateds"

    NEXT_OBS = "new_obs"

    ACTIONS_FOR_ENV = "actions_for_env"
    ACTION_DIST_INPUTS = "action_dist_inputs"
    ACTION_LOGP = "action_logp"
    ACTION_PROB = "action_prob"
    VF_PREDS = "vf_preds"
    EMBEDDINGS = "embeddings"

    STATE_IN = "state_in"
    STATE_OUT = "state_out"

    EPS_ID = "eps_id"
    AGENT_ID = "agent_id"
    MODULE_ID = "module_id"
    T = "t"

    ADVANTAGES = "advantages"
    VALUE_TARGETS = "value_targets"
    RETURNS_TO_GO = "returns_to_go"
    DISCOUNTED_RETURNS = "discounted_returns"
    SEQ_LENS = "seq_lens"
    LOSS_MASK = "loss_mask"
