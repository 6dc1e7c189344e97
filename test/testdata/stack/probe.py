import numpy

print("fake", numpy.__version__)
