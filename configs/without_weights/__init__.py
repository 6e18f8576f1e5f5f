"""What stands in where weights are not there: a checkpoint's shape, published acceptance. It is part of the cell."""
