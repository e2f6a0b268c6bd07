from hypothesis import settings

# a time limit for each example would make tests fail on a busy machine
settings.register_profile("property", deadline=None)
settings.load_profile("property")
