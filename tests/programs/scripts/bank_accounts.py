"""Bank accounts as named actors; transfers find them by name."""

import ray

ray.init(num_cpus=4, namespace="bank")


class InsufficientFunds(Exception):
    def __init__(self, owner, missing):
        super().__init__(owner, missing)
        self.owner = owner
        self.missing = missing

    def __str__(self):
        return f"{self.owner} lacks {self.missing}"


@ray.remote(num_cpus=0)
class Account:
    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance
        self.entries = []

    def deposit(self, amount, note=""):
        self.balance += amount
        self.entries.append((amount, note))
        return self.balance

    def withdraw(self, amount, note=""):
        if amount > self.balance:
            raise InsufficientFunds(self.owner, amount - self.balance)
        return self.deposit(-amount, note=note)

    def statement(self):
        return self.balance, self.entries


@ray.remote
def transfer(source, target, amount):
    source_account = ray.get_actor(source)
    target_account = ray.get_actor(target, namespace="bank")
    try:
        ray.get(source_account.withdraw.remote(amount, f"to {target}"))
    except InsufficientFunds as error:
        return f"refused: {error.owner} lacks {error.missing}"
    ray.get(target_account.deposit.remote(amount, note=f"from {source}"))
    return "done"


accounts = [Account.options(name=name).remote(name, balance=100) for name in ("alice", "bob", "carol")]
ray.get([a.statement.remote() for a in accounts])

print(ray.get(transfer.remote("alice", "bob", 30)))
print(ray.get(transfer.remote("bob", "carol", 130)))
print(ray.get(transfer.remote("bob", "carol", 1)))
many = [transfer.remote("carol", name, 1) for name in ("alice", "bob") * 10]
print(set(ray.get(many)))
for account in accounts:
    balance, entries = ray.get(account.statement.remote())
    print(balance, len(entries), entries[0])
print("sum:", sum(ray.get(a.statement.remote())[0] for a in accounts))

try:
    Account.options(name="alice").remote("alice again")
except ValueError as error:
    print("ValueError", "alice" in str(error))
try:
    ray.get_actor("dave")
except ValueError as error:
    print("ValueError", "dave" in str(error))

same = Account.options(name="alice", get_if_exists=True).remote("alice", balance=0)
print(ray.get(same.statement.remote())[0], same == accounts[0])
print(sorted(ray.util.list_named_actors()))
print(sorted((e["name"], e["namespace"]) for e in ray.util.list_named_actors(all_namespaces=True)))

ray.kill(same)
try:
    ray.get(same.deposit.remote(1))
except ray.exceptions.RayActorError as error:
    print(type(error).__name__)
