"""Variants of a network against those parts of its contract that a parameter may break."""


def check_variant(contract, network):
    variant = type("Variant", (contract,), {"environment": lambda self: network})()
    variant.test_shapes_types_and_ranges()
    variant.test_every_policy_meets_the_same_world()
