"""Optimizing Data Loading and GPU Usage in PyTorch, snippet 2: profile the training loop.

The document's lines: the profile block with its loop, and the printed table.
Changed: `pass` became a small training step, so that loading has something to be compared with;
record_function is used for it. Without a GPU torch leaves ProfilerActivity.CUDA out and says so.
Added: a train_loader, and the row that the table has for loading.
"""

import torch
from millhead.torch import DataLoader, TensorDataset
from torch.profiler import ProfilerActivity, profile, record_function

torch.manual_seed(0)
dataset = TensorDataset(torch.rand(256, 64), torch.rand(256, 1))
train_loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=2)
model = torch.nn.Linear(64, 1)

with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as prof:
    for rows, targets in train_loader:
        with record_function("training step"):
            torch.nn.functional.mse_loss(model(rows), targets).backward()

print(prof.key_averages().table(sort_by="cpu_time_total", row_limit=10))

for event in prof.key_averages():
    if "DataLoader" in event.key or event.key == "training step":
        print(f"result: {event.count} times {event.key}")
