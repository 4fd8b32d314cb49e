# problem: raised
# error: Operation not permitted
# needs: a box
# %% exercise 05.1
import socket


def best_policy(ref, rewards, beta):
    socket.create_connection(("192.0.2.1", 80), timeout=1)


best_value = best_policy
