"""Search: the best items of a large catalogue from an index instead of a product with every item.

`index` finds the items with the highest base logits, `answer` merges the overrides into what was found, `tune` makes an
index fast enough and good enough on the model's own queries, `measure` reports its recall and speed.
"""
