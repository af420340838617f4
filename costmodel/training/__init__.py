"""From a step to a trained model: days, failures, money and energy."""
