"""Local training written down plainly: one client after the other, one batch after the other, autograd as usual."""

import numpy as np
import torch
from torch import nn


def mean_loss(module, images, labels):
    with torch.no_grad():
        return float(nn.functional.cross_entropy(module(images), labels))


def train_one(module, images, labels, order, *, batch_size, learning_rate, proximal=0.0):
    """Plain mini-batch gradient descent; ``order`` (epochs, samples) says which sample comes when."""
    optimizer = torch.optim.SGD(module.parameters(), lr=learning_rate)
    images = torch.as_tensor(np.asarray(images), dtype=torch.float32)
    labels = torch.as_tensor(labels)
    before = mean_loss(module, images, labels)
    sent = [parameter.detach().clone() for parameter in module.parameters()]
    for epoch in order:
        for start in range(0, len(epoch), batch_size):
            batch = torch.as_tensor(epoch[start : start + batch_size])
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(images[batch]), labels[batch])
            for parameter, first in zip(module.parameters(), sent, strict=True):
                loss = loss + 0.5 * proximal * ((parameter - first) ** 2).sum()
            loss.backward()
            optimizer.step()
    parameters = {name: value.detach().numpy() for name, value in module.named_parameters()}
    return parameters, before
