# problem: raised
# error: can't start new thread
# needs: a box
# %% exercise 05.1
import threading
import time


def best_policy(ref, rewards, beta):
    while True:
        threading.Thread(target=time.sleep, args=(3600,)).start()


best_value = best_policy
