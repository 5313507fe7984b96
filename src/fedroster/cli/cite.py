"""``fedroster cite``: BibTeX of the papers behind the policies."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fedroster.cli.command import command
from fedroster.core.errors import InvalidInputError, UnknownNameError

_CITATIONS = {
    "rbcs-f": """@article{huang2021rbcsf,
  author  = {Huang, Tiansheng and Lin, Weiwei and Wu, Wentai and He, Ligang and Li, Keqin and Zomaya, Albert Y.},
  title   = {An Efficiency-Boosting Client Selection Scheme for Federated Learning with Fairness Guarantee},
  journal = {IEEE Transactions on Parallel and Distributed Systems},
  year    = {2021},
  doi     = {10.1109/TPDS.2020.3040887}
}""",
    "cocs": """@misc{qu2021cocs,
  author = {Qu, Zhe and Duan, Rui and Chen, Lixing and Xu, Jie and Lu, Zhuo and Liu, Yao},
  title  = {Context-Aware Online Client Selection for Hierarchical Federated Learning},
  year   = {2021},
  eprint = {2112.00925},
  archivePrefix = {arXiv}
}""",
    "fedcs": """@inproceedings{nishio2019fedcs,
  author    = {Nishio, Takayuki and Yonetani, Ryo},
  title     = {Client Selection for Federated Learning with Heterogeneous Resources in Mobile Edge},
  booktitle = {IEEE International Conference on Communications (ICC)},
  year      = {2019},
  doi       = {10.1109/ICC.2019.8761315}
}""",
    "random": """@inproceedings{mcmahan2017communication,
  author    = {McMahan, H. Brendan and Moore, Eider and Ramage, Daniel and Hampson, Seth
               and Ag{\\"u}era y Arcas, Blaise},
  title     = {Communication-Efficient Learning of Deep Networks from Decentralized Data},
  booktitle = {International Conference on Artificial Intelligence and Statistics (AISTATS)},
  year      = {2017},
  eprint    = {1602.05629},
  archivePrefix = {arXiv}
}""",
    "oort": """@inproceedings{lai2021oort,
  author    = {Lai, Fan and Zhu, Xiangfeng and Madhyastha, Harsha V. and Chowdhury, Mosharaf},
  title     = {Oort: Efficient Federated Learning via Guided Participant Selection},
  booktitle = {USENIX Symposium on Operating Systems Design and Implementation (OSDI)},
  year      = {2021},
  eprint    = {2010.06081},
  archivePrefix = {arXiv}
}""",
    "power-of-choice": """@misc{cho2020powerofchoice,
  author = {Cho, Yae Jee and Wang, Jianyu and Joshi, Gauri},
  title  = {Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice Selection Strategies},
  year   = {2020},
  eprint = {2010.01243},
  archivePrefix = {arXiv}
}""",
    "tifl": """@inproceedings{chai2020tifl,
  author    = {Chai, Zheng and Ali, Ahsan and Zawad, Syed and Truex, Stacey and Anwar, Ali and Baracaldo, Nathalie
               and Zhou, Yi and Ludwig, Heiko and Yan, Feng and Cheng, Yue},
  title     = {{TiFL}: A Tier-based Federated Learning System},
  booktitle = {International Symposium on High-Performance Parallel and Distributed Computing (HPDC)},
  year      = {2020},
  doi       = {10.1145/3369583.3392686}
}""",
    "e3cs": """@article{huang2022e3cs,
  author  = {Huang, Tiansheng and Lin, Weiwei and Shen, Li and Li, Keqin and Zomaya, Albert Y.},
  title   = {Stochastic Client Selection for Federated Learning With Volatile Clients},
  journal = {IEEE Internet of Things Journal},
  year    = {2022},
  doi     = {10.1109/JIOT.2022.3172113}
}""",
    "cs-ucb": """@article{xia2020csucb,
  author  = {Xia, Wenchao and Quek, Tony Q. S. and Guo, Kun and Wen, Wanli and Yang, Howard H. and Zhu, Hongbo},
  title   = {Multi-Armed Bandit-Based Client Scheduling for Federated Learning},
  journal = {IEEE Transactions on Wireless Communications},
  year    = {2020},
  doi     = {10.1109/TWC.2020.3008091}
}""",
    "round-robin": """@article{yang2020scheduling,
  author  = {Yang, Howard H. and Liu, Zuozhu and Quek, Tony Q. S. and Poor, H. Vincent},
  title   = {Scheduling Policies for Federated Learning in Wireless Networks},
  journal = {IEEE Transactions on Communications},
  year    = {2020},
  eprint  = {1908.06287},
  archivePrefix = {arXiv}
}""",
    "size-weighted": """@inproceedings{li2020convergence,
  author    = {Li, Xiang and Huang, Kaixuan and Yang, Wenhao and Wang, Shusen and Zhang, Zhihua},
  title     = {On the Convergence of {FedAvg} on Non-{IID} Data},
  booktitle = {International Conference on Learning Representations (ICLR)},
  year      = {2020},
  eprint    = {1907.02189},
  archivePrefix = {arXiv}
}""",
}
# Policies that come with another one's paper.
_CITED_AS = {
    **dict.fromkeys(("p3", "dirichlet"), "rbcs-f"),
    **dict.fromkeys(("oracle", "oracle-p", "cucb", "linucb"), "cocs"),
    "fedcs-greedy": "fedcs",
}


@command()
def cite(
    name: Annotated[
        str | None, typer.Argument(help="Paper or policy, such as rbcs-f; all papers if not given.")
    ] = None,
) -> None:
    """Print BibTeX of the papers behind the policies."""
    from fedroster.catalogue import policies

    if name is None:
        sys.stdout.write("\n".join([*_CITATIONS.values(), ""]))
        return
    paper = _CITED_AS.get(name, name)
    if paper in policies() and paper not in _CITATIONS:
        raise InvalidInputError(
            f"policy {name} comes from no paper that is known here; expected one of {', '.join(_CITATIONS)}, "
            "or cite the software: CITATION.cff"
        )
    if paper not in _CITATIONS:
        raise UnknownNameError.of("paper", name, {**_CITATIONS, **_CITED_AS})
    sys.stdout.write(_CITATIONS[paper] + "\n")
