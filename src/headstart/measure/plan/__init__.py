"""Break-even arithmetic without a model: what drafting would bring, from acceptance and costs that are given."""

from headstart.measure.plan.best_tree import BestTree, best_tree, likeliest_tree
from headstart.measure.plan.break_even import DepthFigures, break_even_acceptance, depth_figures
from headstart.measure.plan.planning import Plan, make_plan
from headstart.measure.plan.roofline import Experts, Roofline
from headstart.measure.plan.setup import DraftingSetup
from headstart.measure.plan.speed_of_light import most_kept_guesses

__all__ = [
    "BestTree",
    "DepthFigures",
    "DraftingSetup",
    "Experts",
    "Plan",
    "Roofline",
    "best_tree",
    "break_even_acceptance",
    "depth_figures",
    "likeliest_tree",
    "make_plan",
    "most_kept_guesses",
]
