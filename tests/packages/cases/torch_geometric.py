import torch
import torch_geometric.nn as g
from models import array, filled, integers, several
from torch_geometric.data import Batch, Data
from torch_geometric.utils import add_self_loops, degree, softmax, to_dense_adj, to_undirected

NODES, EDGES = 12, 30
EDGE_INDEX = integers(NODES, 2, EDGES)
WEIGHTS = array(EDGES, seed=5, low=0.1)
GRAPHS = torch.tensor([0] * 5 + [1] * 4 + [2] * 3)


class OnGraph(torch.nn.Module):
    def __init__(self, conv, *more, **options):
        super().__init__()
        self.conv, self.more, self.options = conv, more, options

    def forward(self, x):
        return self.conv(x, *self.more, **self.options)


def conv(make, *more, **options):
    more = more or (EDGE_INDEX,)
    return lambda: (filled(OnGraph(make(), *more, **options)).eval(), array(NODES, 8))


def pool(make):
    return lambda: (filled(OnGraph(make(), GRAPHS)).eval(), array(NODES, 8))


def mlp(i, o):
    return torch.nn.Sequential(torch.nn.Linear(i, 16), torch.nn.ReLU(), torch.nn.Linear(16, o))


def batched(x):
    data = [
        Data(x=x[k == GRAPHS], edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]])) for k in range(3)
    ]
    batch = Batch.from_data_list(data)
    return g.global_mean_pool(batch.x, batch.batch), batch.edge_index, batch.ptr


several(
    "torch_geometric",
    gcn=conv(lambda: g.GCNConv(8, 6)),
    gcn_weighted=conv(lambda: g.GCNConv(8, 6), EDGE_INDEX, WEIGHTS),
    cheb=conv(lambda: g.ChebConv(8, 6, K=3)),
    sage=conv(lambda: g.SAGEConv(8, 6)),
    sage_max=conv(lambda: g.SAGEConv(8, 6, aggr="max")),
    gat=conv(lambda: g.GATConv(8, 6, heads=2)),
    gat_v2=conv(lambda: g.GATv2Conv(8, 6, heads=2)),
    gin=conv(lambda: g.GINConv(mlp(8, 6), train_eps=True)),
    transformer=conv(lambda: g.TransformerConv(8, 6, heads=2)),
    graph=conv(lambda: g.GraphConv(8, 6)),
    gated=conv(lambda: g.GatedGraphConv(8, num_layers=2)),
    res_gated=conv(lambda: g.ResGatedGraphConv(8, 6)),
    tag=conv(lambda: g.TAGConv(8, 6, K=2)),
    sgc=conv(lambda: g.SGConv(8, 6, K=2)),
    appnp=conv(lambda: g.APPNP(K=3, alpha=0.1)),
    arma=conv(lambda: g.ARMAConv(8, 6)),
    nn_conv=conv(lambda: g.NNConv(8, 6, mlp(3, 48)), EDGE_INDEX, array(EDGES, 3, seed=7)),
    cg=conv(lambda: g.CGConv(8)),
    edge=conv(lambda: g.EdgeConv(mlp(16, 6))),
    gen=conv(lambda: g.GENConv(8, 6)),
    le=conv(lambda: g.LEConv(8, 6)),
    mf=conv(lambda: g.MFConv(8, 6)),
    feast=conv(lambda: g.FeaStConv(8, 6, heads=2)),
    film=conv(lambda: g.FiLMConv(8, 6)),
    super_gat=conv(lambda: g.SuperGATConv(8, 6, heads=2)),
    pna=conv(
        lambda: g.PNAConv(
            8,
            6,
            ["mean", "min", "max", "std"],
            ["identity", "amplification"],
            torch.tensor([0, 3, 5, 4]),
        )
    ),
    relational=conv(
        lambda: g.RGCNConv(8, 6, num_relations=3), EDGE_INDEX, integers(3, EDGES, seed=8)
    ),
    hypergraph=conv(lambda: g.HypergraphConv(8, 6)),
    gmm=conv(lambda: g.GMMConv(8, 6, dim=2, kernel_size=3), EDGE_INDEX, array(EDGES, 2, seed=9)),
    cluster=conv(lambda: g.ClusterGCNConv(8, 6)),
    general=conv(lambda: g.GeneralConv(8, 6)),
    model_gcn=conv(lambda: g.GCN(8, 16, num_layers=3, out_channels=4, norm="batch")),
    model_gat=conv(lambda: g.GAT(8, 16, num_layers=2, out_channels=4, heads=2)),
    model_sage=conv(lambda: g.GraphSAGE(8, 16, num_layers=2, out_channels=4, jk="cat")),
    model_gin=conv(lambda: g.GIN(8, 16, num_layers=2, out_channels=4)),
    sum_pool=lambda: (lambda x: g.global_add_pool(x, GRAPHS), array(NODES, 8)),
    mean_pool=lambda: (lambda x: g.global_mean_pool(x, GRAPHS), array(NODES, 8)),
    max_pool=lambda: (lambda x: g.global_max_pool(x, GRAPHS), array(NODES, 8)),
    attention_pool=pool(lambda: g.AttentionalAggregation(mlp(8, 1))),
    set_to_set=pool(lambda: g.Set2Set(8, processing_steps=2)),
    softmax_pool=pool(lambda: g.SoftmaxAggregation(learn=True)),
    sort_pool=pool(lambda: g.SortAggregation(k=3)),
    batch_norm=lambda: (filled(g.BatchNorm(8)).train(), array(NODES, 8)),
    layer_norm=conv(lambda: g.LayerNorm(8), GRAPHS),
    graph_norm=conv(lambda: g.GraphNorm(8), GRAPHS),
    pair_norm=conv(lambda: g.PairNorm(), GRAPHS),
    top_k=conv(lambda: g.TopKPooling(8, ratio=0.5), EDGE_INDEX, None, GRAPHS),
    batches=lambda: (batched, array(NODES, 8)),
    edge_softmax=lambda: (lambda w: softmax(w, EDGE_INDEX[1], num_nodes=NODES), array(EDGES)),
    dense=lambda: (
        lambda w: to_dense_adj(EDGE_INDEX, edge_attr=w, max_num_nodes=NODES),
        array(EDGES),
    ),
    undirected=lambda: (lambda w: to_undirected(EDGE_INDEX, w), array(EDGES)),
    loops=lambda: (
        lambda w: (add_self_loops(EDGE_INDEX, w, num_nodes=NODES), degree(EDGE_INDEX[0], NODES)),
        array(EDGES),
    ),
)
