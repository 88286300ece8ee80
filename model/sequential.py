"""Writes a torch.nn.Sequential as the layers of a network JSON, for the networks of this folder.

The layers may be Conv2d (without dilation and groups), Linear, MaxPool2d, ReLU and Flatten. Dropout
is left out.
"""

from torch import nn

from mortonnet.exporter import write_matrix


def write_layers(model, folder):
    """Writes the matrices of `model` into `folder` and returns the `layers` key."""
    layers, number = [], 0
    for module in model:
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            number += 1
            weights, biases = module.weight.detach().numpy(), module.bias.detach().numpy()
            entry = {"layer": "AffineLayer"}
            if isinstance(module, nn.Conv2d):
                weights = weights.transpose(0, 2, 3, 1).reshape(
                    len(weights), -1
                )  # columns in the order ky, kx, c
                entry = {"layer": "ConvLayer", "kernel": list(module.kernel_size)}
                entry |= {"stride": list(module.stride)} if module.stride != (1, 1) else {}
                entry |= {"pad": list(module.padding)} if module.padding != (0, 0) else {}
            entry["weights"] = write_matrix(folder, f"{number}_w", weights)
            entry["biases"] = write_matrix(folder, f"{number}_b", biases[:, None])
            layers.append(entry)
        elif isinstance(module, nn.MaxPool2d):
            layers.append({"layer": "MaxPoolLayer", "kernel": [module.kernel_size] * 2})
        elif isinstance(module, (nn.ReLU, nn.Flatten)):
            layers.append({"layer": f"{type(module).__name__}Layer"})
        elif not isinstance(module, nn.Dropout):
            raise TypeError(f"expected a layer that this script knows, found {module}")
    return layers
