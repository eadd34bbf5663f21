"""Graphs as modules. The class is made when it is first used: it needs the wheel rabbet-nn."""
class GraphModule: pass
