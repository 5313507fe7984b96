"""Runs the example: in simulation, or as SuperLink and SuperNodes with TLS and node authentication on this machine.

python run.py simulation --out /tmp/digits
python run.py deployment --out /tmp/digits
python run.py faults --out /tmp/faults

Each way of sampling gets a run of its own; then the report is printed: mean round times and least participation rates.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import ipaddress
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from digits_app.task import write_digits
from slowdown import NarrowLink, SlowProcessor

APP = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
SAMPLINGS = ("fedavg", "uniform", "rbcs-f", "free-places")
SIZES = {"simulation": (100, 0.4), "deployment": (50, 10.0)}
"""Rounds, and seconds that training takes."""
GOALS = (0.85, 0.9, 0.92)
SLOW_FACTOR = 4.0


# ---------------------------------------------------------------- certificates and keys


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _write_key(key: ec.EllipticCurvePrivateKey, path: Path) -> None:
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    path.chmod(0o600)


def make_certificates(folder: Path) -> None:
    """Write ``ca.pem``, ``server.pem`` and ``server.key`` for this machine's loopback, valid for a day."""
    now = datetime.datetime.now(datetime.UTC)

    def certificate(subject: str, issuer: str, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(_name(subject))
            .issuer_name(_name(issuer))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=1))
        )

    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    root = (
        certificate("digits CA", "digits CA", authority.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=True,
                crl_sign=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .sign(authority, hashes.SHA256())
    )
    leaf = (
        certificate("localhost", "digits CA", server.public_key())
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA256())
    )
    (folder / "ca.pem").write_bytes(root.public_bytes(serialization.Encoding.PEM))
    (folder / "server.pem").write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    _write_key(server, folder / "server.key")


def make_node_key(folder: Path, name: str) -> str:
    """Write a node's key pair ``NAME`` and ``NAME.pub`` in OpenSSH's format; returns the public key."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = folder / name
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    )
    private.chmod(0o600)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (folder / f"{name}.pub").write_bytes(public)
    return public.decode()


# ---------------------------------------------------------------- processes


def free_ports(count: int) -> list[int]:
    """Ports of this machine that are free now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def wait_for_port(port: int, process: subprocess.Popen, log: Path, limit_s: float = 90.0) -> None:
    """Wait until something listens.

    Raises:
        RuntimeError: If the process ends or nothing listens in time; the message holds the log's end.
    """
    until = time.monotonic() + limit_s
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.2)
    raise RuntimeError(f"nothing listens on port {port}:\n{log.read_text(errors='replace')[-3000:]}")


@dataclass
class Federation:
    """Flower's processes on this machine.

    Attributes:
        folder: Where everything is written.
        is_http: Whether this Flower speaks HTTP and keeps connections in a file of its own.
        ties_names: Whether this Flower can register a name with a node's key.
        app: Folder of the app that is run.
        processes: What was started, by name; each leads a process group.
        connection: Name that ``flwr run`` is given.
        options: More options of ``flwr run``.
        links: Narrow links in front of slow nodes.
        brakes: What takes processors away from slow nodes.
        fleet_port: Where SuperNodes connect.
        superlink: Command of the SuperLink.
        node_ids: Flower's id of each registered node, by name.
    """

    folder: Path
    is_http: bool
    ties_names: bool
    app: Path
    processes: dict[str, subprocess.Popen] = field(default_factory=dict)
    connection: str = ""
    options: tuple[str, ...] = ()
    links: dict[str, NarrowLink] = field(default_factory=dict)
    brakes: dict[str, SlowProcessor] = field(default_factory=dict)
    fleet_port: int = 0
    superlink: tuple[str | Path, ...] = ()
    node_ids: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """Environment of every process: our Flower first on the path, nothing in the user's home, no telemetry."""
        return os.environ | {
            "FLWR_HOME": str(self.folder / "flwr-home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_UPDATE_CHECK": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            "PATH": os.pathsep.join((str(BIN), os.environ.get("PATH", ""))),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }

    def log_of(self, name: str) -> Path:
        """Where a process writes."""
        return self.folder / f"{name}.log"

    def start(self, name: str, *command: str | Path) -> subprocess.Popen:
        """Start one of Flower's programs."""
        with self.log_of(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(BIN / command[0]), *map(str, command[1:])],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=self.environment,
                start_new_session=True,
            )
        return self.processes[name]

    def stop(self, name: str, how: int = signal.SIGKILL) -> None:
        """End a process and all that it started."""
        if name in self.brakes:
            self.brakes.pop(name).close()
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=15)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=15)

    def start_superlink(self, port: int) -> None:
        """Start the SuperLink and wait until it listens; what it knows is in its database, over a kill, too."""
        wait_for_port(port, self.start("superlink", *self.superlink), self.log_of("superlink"))

    def tell(self, *command: str | Path) -> str:
        """Give ``flwr`` a command that ends at once; returns its output."""
        done = subprocess.run(
            [BIN / "flwr", *command], env=self.environment, check=True, capture_output=True, text=True, cwd=self.folder
        )
        return done.stdout

    def register(self, key: str, *options: str) -> None:
        """Put a node's key on the SuperLink's list; its node id is kept in ``node_ids``."""
        public = self.folder / "keys" / f"{key}.pub"
        where = ("here",) if self.is_http else (self.app, "here")
        told = json.loads(self.tell("supernode", "register", public, *where, "--format", "json", *options))
        if not told["success"]:
            raise RuntimeError(f"{key} is not registered: {told['error-message']}")
        self.node_ids[key] = str(told["node-id"])

    def launch(self, config: dict[str, object]) -> subprocess.Popen:
        """Begin to run the app with ``flwr run``; the log is called ``run``."""
        text = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        return self.start(
            "run", "flwr", "run", self.app, self.connection, "--stream", "--run-config", text, *self.options
        )

    def run(self, config: dict[str, object], *, limit_s: float) -> None:
        """Run the app and wait until it ends.

        Raises:
            subprocess.TimeoutExpired: If it takes too long.
        """
        try:
            self.launch(config).wait(timeout=limit_s)
        finally:
            self.stop("run")

    def processes_of(self, program: str) -> list[int]:
        """Ids of this federation's processes whose command line names a program."""
        found, mine = [], f"FLWR_HOME={self.folder}/".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command, environment = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
                if program.encode() in command and mine in environment:
                    found.append(int(folder.name))
        return found


def _has_option(option: str, *command: str) -> bool:
    shown = subprocess.run([BIN / command[0], *command[1:], "--help"], capture_output=True, text=True, check=False)
    return option in shown.stdout


@contextlib.contextmanager
def _federation(folder: Path) -> Iterator[Federation]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "flwr-home").mkdir(exist_ok=True)
    is_http = _has_option("--port", "flower-supernode")
    ties_names = is_http and _has_option("--name", "flwr", "supernode", "register")
    federation = Federation(folder.resolve(), is_http, ties_names, folder.resolve() / "app")
    # A copy, since some versions of Flower rewrite the pyproject.toml of the app that they run.
    wanted = shutil.ignore_patterns("__pycache__", "*.json", "run.py", "slowdown.py", "faults.py")
    shutil.copytree(APP, federation.app, ignore=wanted, dirs_exist_ok=True)
    try:
        yield federation
    finally:
        for name in list(federation.processes)[::-1]:
            federation.stop(name, signal.SIGTERM)
        for link in federation.links.values():
            link.close()


@contextlib.contextmanager
def simulation(folder: Path, *, num_nodes: int, num_workers: int) -> Iterator[Federation]:
    """A federation of simulated nodes, of which so many work at a time."""
    with _federation(folder) as federation:
        if not federation.is_http:
            _write_connection(
                federation,
                f"options.num-supernodes = {num_nodes}\noptions.backend.client-resources.num-cpus = 1\n"
                f"options.backend.init-args.num-cpus = {num_workers}\n",
            )
            yield federation
            return
        # Flower's own local SuperLink would install the app's dependencies again; this one uses what is here.
        (port,) = free_ports(1)
        superlink = federation.start(
            "superlink",
            "flower-superlink",
            "--simulation",
            "--insecure",
            "--disable-runtime-dependency-installation",
            *("--port", str(port)),
        )
        wait_for_port(port, superlink, federation.log_of("superlink"))
        _write_connection(federation, f'address = "127.0.0.1:{port}"\ninsecure = true\n')
        federation.options = (
            "--federation-config",
            f"num-supernodes={num_nodes} client-resources-num-cpus=1 init-args-num-cpus={num_workers}",
        )
        yield federation


def _write_connection(federation: Federation, text: str) -> None:
    """Tell ``flwr run`` where to run: in Flower's own file, or with older versions in the app's ``pyproject.toml``."""
    federation.connection = "here"
    if federation.is_http:
        path = federation.folder / "flwr-home" / "config.toml"
        path.write_text(f'[superlink]\ndefault = "here"\n\n[superlink.here]\n{text}', encoding="utf-8")
    else:
        app = (APP / "pyproject.toml").read_text(encoding="utf-8")
        path = federation.app / "pyproject.toml"
        path.write_text(f"{app}\n[tool.flwr.federations.here]\n{text}", encoding="utf-8")


@contextlib.contextmanager
def deployment(
    folder: Path,
    *,
    num_nodes: int,
    slow_nodes: Sequence[int] = (),
    share: float = 1.0 / SLOW_FACTOR,
    bytes_per_s: float = 100e3,
    claims: Mapping[int, str] | None = None,
    settings_of: Mapping[int, str] | None = None,
) -> Iterator[Federation]:
    """A SuperLink and SuperNodes, each a process of its own, with TLS and node authentication.

    Args:
        folder: Where keys, logs and settings go.
        num_nodes: Number of SuperNodes.
        slow_nodes: Those that get a share of a processor and a narrow network.
        share: Share of the time that their processes run.
        bytes_per_s: Rate of their network.
        claims: Names that nodes report instead of the ones that are registered with their keys, by number.
        settings_of: More of nodes' configurations, by number.
    """
    with _federation(folder) as federation:
        keys = federation.folder / "keys"
        keys.mkdir(exist_ok=True)
        make_certificates(keys)
        for n in range(num_nodes):
            make_node_key(keys, f"node-{n}")
        data = write_data(federation.folder / "data", num_nodes)
        tls = (
            *("--ssl-ca-certfile", keys / "ca.pem"),
            *("--ssl-certfile", keys / "server.pem"),
            *("--ssl-keyfile", keys / "server.key"),
        )
        connection = f'address = "127.0.0.1:{{}}"\nroot-certificates = "{keys / "ca.pem"}"\n'
        if federation.is_http:
            (fleet,) = free_ports(1)
            federation.superlink = (
                "flower-superlink",
                *tls,
                *("--database", federation.folder / "superlink.db"),
                "--enable-supernode-auth",
                "--disable-runtime-dependency-installation",
                *("--port", str(fleet)),
            )
            federation.start_superlink(fleet)
            federation.fleet_port = fleet
            _write_connection(federation, connection.format(fleet))
        else:
            fleet, control, app_io = free_ports(3)
            federation.superlink = (
                "flower-superlink",
                *tls,
                *("--database", federation.folder / "superlink.db"),
                "--enable-supernode-auth",
                *("--fleet-api-address", f"127.0.0.1:{fleet}"),
                *("--control-api-address", f"127.0.0.1:{control}"),
                *("--serverappio-api-address", f"127.0.0.1:{app_io}"),
            )
            federation.start_superlink(control)
            federation.fleet_port = fleet
            _write_connection(federation, connection.format(control))
        for n in range(num_nodes):
            federation.register(f"node-{n}", *(("--name", f"node-{n}") if federation.ties_names else ()))
        for n in range(num_nodes):
            start_node(
                federation,
                n,
                num_nodes,
                fleet,
                share=share,
                bytes_per_s=bytes_per_s if n in slow_nodes else 0.0,
                data=data / f"node-{n}.npz",
                claim=(claims or {}).get(n, ""),
                more=(settings_of or {}).get(n, ""),
            )
        yield federation


def start_node(
    federation: Federation,
    number: int,
    num_nodes: int,
    fleet_port: int,
    *,
    data: Path,
    share: float = 1.0,
    bytes_per_s: float = 0.0,
    claim: str = "",
    more: str = "",
) -> None:
    """Start a SuperNode.

    With ``bytes_per_s`` it is a slow one, with ``claim`` it reports that name; ``more`` is added to its configuration.
    """
    name, keys = f"node-{number}", federation.folder / "keys"
    port = fleet_port
    if bytes_per_s:
        federation.links[name] = NarrowLink(("127.0.0.1", fleet_port), bytes_per_s=bytes_per_s, delay_s=0.01)
        port = federation.links[name].port
    (own,) = free_ports(1)
    # All nodes share this machine, whose load says nothing about a node: none claims to be slower than another.
    config = (
        f'name="{claim or name}" partition-id={number} num-partitions={num_nodes} cpu-share=1.0 data="{data}" {more}'
    )
    process = federation.start(
        name,
        "flower-supernode",
        *("--superlink", f"127.0.0.1:{port}"),
        *("--root-certificates", keys / "ca.pem"),
        *("--auth-supernode-private-key", keys / name),
        *("--node-config", config),
        *(("--port", str(own)) if federation.is_http else ("--clientappio-api-address", f"127.0.0.1:{own}")),
    )
    if bytes_per_s:
        federation.brakes[name] = SlowProcessor(process.pid, share=share)


# ---------------------------------------------------------------- the comparison


def write_data(folder: Path, num_nodes: int) -> Path:
    """Write each node's digits to a file of its own; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for n in range(num_nodes):
        write_digits(folder / f"node-{n}.npz", n, num_nodes)
    return folder.resolve()


def compare(
    federation: Federation, out: Path, samplings: Sequence[str], config: dict[str, object], *, limit_s: float
) -> dict[str, dict]:
    """Run every way of sampling and return their reports.

    Raises:
        RuntimeError: If a run leaves no report; the message holds its output.
    """
    reports = {}
    for sampling in samplings:
        federation.run({**config, "sampling": sampling, "out": str(out.resolve())}, limit_s=limit_s)
        path = out / f"{sampling}.json"
        if not path.exists():
            log = federation.log_of("run").read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"{sampling} left no report:\n{log[-6000:]}")
        reports[sampling] = json.loads(path.read_text(encoding="utf-8"))
    return reports


def summary(reports: dict[str, dict]) -> str:
    """The report that is printed."""
    base = reports.get("fedavg", next(iter(reports.values())))["mean_s"]
    goals = "".join(f" {f'to {goal:.0%}':>9}" for goal in GOALS)
    lines = [
        f"{'sampling':11} {'mean round':>11} {'of fedavg':>10} {'least rate':>11} {'lost':>5} {'accuracy':>9}{goals}"
    ]
    lines += [
        f"{name:11} {report['mean_s']:9.2f} s {report['mean_s'] / base:10.0%} {report['least_rate']:11.3f} "
        f"{report['lost']:5d} {report['accuracy']:9.3f}" + "".join(f" {_reached(report, goal):>9}" for goal in GOALS)
        for name, report in reports.items()
    ]
    return "\n".join(lines)


def _reached(report: dict, goal: float) -> str:
    """When the test accuracy was there first, since the end of the first round, in which processes start."""
    times = [at for at, accuracy in zip(report["at_s"], report["accuracies"], strict=True) if accuracy >= goal]
    return f"{times[0] - report['at_s'][1]:.1f} s" if times else "never"


def settings(num_nodes: int, cohort_size: int, num_rounds: int, pace_s: float) -> dict[str, object]:
    r"""Settings of the app for a fifth of the nodes four times slower.

    beta is a third of the even share m / N.  V follows from how far a node may be behind at the end: its rate is at
    least :math:`\beta - Z_T / T`, and 0.02 is what it may miss.  Two slow nodes that share a round settle at queues of
    half of V times what that round takes longer; three quarters are allowed for.
    """
    longer_s = (SLOW_FACTOR - 1.0) * pace_s
    return {
        "num-rounds": num_rounds,
        "num-nodes": num_nodes,
        "cohort-size": cohort_size,
        "beta": round(0.33 * cohort_size / num_nodes, 3),
        "V": float(f"{0.03 * num_rounds / longer_s:.2g}"),
        "pace-s": pace_s,
        "slow-factor": SLOW_FACTOR,
    }


def main() -> None:
    """Read the command line and run."""
    if sys.argv[1:2] == ["faults"]:
        import faults  # it needs this module

        faults.main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("where", choices=tuple(SIZES), help="or: faults, with options of its own")
    parser.add_argument("--out", type=Path, required=True, help="folder for reports, logs, keys and settings")
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--cohort", type=int, default=3)
    parser.add_argument("--rounds", type=int, help="by default 100 in a simulation, 50 in a deployment")
    parser.add_argument("--pace", type=float, help="seconds that training takes, by default 0.4 and 10")
    parser.add_argument("--samplings", nargs="+", choices=SAMPLINGS, default=list(SAMPLINGS))
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds that one run may take")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the end of this process ends those that it started
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it otherwise
    num_rounds, pace_s = SIZES[given.where]
    config = settings(given.nodes, given.cohort, given.rounds or num_rounds, given.pace or pace_s)
    if given.where == "simulation":
        config["data"] = str(write_data(given.out / "simulation" / "data", given.nodes))
        with simulation(given.out / "simulation", num_nodes=given.nodes, num_workers=given.cohort) as federation:
            reports = compare(federation, given.out, given.samplings, config, limit_s=given.limit)
    else:
        slow = range(max(1, given.nodes // 5))
        config["slow-share"] = 0.0  # they are slowed down from outside
        with deployment(given.out / "deployment", num_nodes=given.nodes, slow_nodes=slow) as federation:
            reports = compare(federation, given.out, given.samplings, config, limit_s=given.limit)
    print(summary(reports))


if __name__ == "__main__":
    main()
