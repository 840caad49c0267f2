"""Plain PyTorch models, one family per file, usable at full size and tiny.

Nothing here knows of actzip: these are the models a user would bring along.
"""
