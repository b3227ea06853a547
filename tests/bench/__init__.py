"""The benchmark: how fast this model trains, beside a naive loop, the floor of its products, and other toolkits."""
