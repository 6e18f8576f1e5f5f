"""How the tiny family is trained, in the engine's environment. No node and no flow imports this: they start `build`.

What is shipped was trained by it. To ship what you trained: `make family`, then copy the members' folders from where it
says that they are to `tasks/family/weights/`.
"""
