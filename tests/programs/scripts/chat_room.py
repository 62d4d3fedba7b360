"""A chat room: members are actors, the room calls them back."""

import ray

ray.init(num_cpus=4)


@ray.remote(num_cpus=0)
class Room:
    def __init__(self, topic):
        self.topic = topic
        self.members = {}
        self.log = []

    def join(self, name, handle):
        self.members[name] = handle
        return self.say("room", f"{name} joined {self.topic}")

    def leave(self, name):
        self.members.pop(name)
        return self.say("room", f"{name} left")

    def say(self, name, text):
        self.log.append((name, text))
        deliveries = [m.receive.remote(name, text) for n, m in self.members.items() if n != name]
        return len(ray.get(deliveries))

    def history(self, since=0):
        return self.log[since:]


@ray.remote(num_cpus=0)
class Member:
    def __init__(self, name):
        self.name = name
        self.inbox = []
        self.room = None

    def enter(self, room):
        self.room = room
        return ray.get(room.join.remote(self.name, ray.get_runtime_context().current_actor))

    async def receive(self, name, text):
        self.inbox.append(f"{name}: {text}")

    def say(self, text):
        return ray.get(self.room.say.remote(self.name, text))

    async def messages(self):
        return self.inbox


room = Room.remote("ray")
members = {name: Member.options(max_concurrency=2).remote(name) for name in ("ann", "ben", "cat")}
for name, member in members.items():
    print(name, "is announced to", ray.get(room.join.remote(name, member)))
print("heard by", ray.get(room.say.remote("ann", "hello")))
print("heard by", ray.get(room.say.remote("ben", "hi ann")))
print("heard by", ray.get(room.leave.remote("ben")))
print("heard by", ray.get(room.say.remote("cat", "bye ben")))
for name, member in members.items():
    print(name, ray.get(member.messages.remote()))
print(ray.get(room.history.remote(since=4)))
