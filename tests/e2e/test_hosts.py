# SPDX-License-Identifier: BSD-3-Clause
"""Three hosts give the bits of one host, for every optimizer and any stars, threads and ranks.

The hosts are network namespaces with their own names, joined by a bridge; MPI uses TCP.  They
share the file system but for /dev/shm and, in some tests, a folder of their own.  Some rows have
one defect each (NaN, infinities, masked and zero arms, one pixel of 1e9, noise, a changed sign),
so that their fits take the rarest paths."""

import shlex

from common import *  # noqa: F403

N_HOST, ROWS = 3, 24


class Network:
    """Three namespaces NAME-1 ... and what starts processes in them."""

    def __init__(self):
        self.name, self.made = f"mill{os.getpid()}", []
        # a subnet of 10/8 chosen by process number, so that simultaneous runs use different ones
        self.net = f"10.{os.getpid() // 250 % 250}.{os.getpid() % 250}"

    def ip(self, *words):
        done = ended(["ip", *words])
        if done.returncode:
            raise unittest.SkipTest(f"this user may not make hosts: ip {' '.join(words)}: "
                                    f"{done.stderr.strip()}")

    def __enter__(self):
        if not shutil.which("ip"):
            raise unittest.SkipTest("no ip (Debian: iproute2)")
        self.agent = put("agent", f"""#!/bin/sh
# HOST COMMAND...: as mpirun starts its daemons on other hosts
n=${{1##*.}}; shift
exec ip netns exec {self.name}-$n unshare -u -m sh -c '
  hostname "host$0"; mount -t tmpfs none /dev/shm
  [ "$0" != 3 ] || [ ! -d "$OWN" ] || mount -t tmpfs none "$OWN"
  exec sh -c "$1"' "$n" "$*"
""")
        os.chmod(self.agent, 0o755)
        try:
            self.make()
        except unittest.SkipTest:
            self.__exit__()
            raise
        return self

    def make(self):
        self.ip("link", "add", self.name, "type", "bridge")
        self.made.append(("link", "del", self.name))
        self.ip("link", "set", self.name, "up")
        for n in range(1, N_HOST + 1):
            there = f"{self.name}-{n}"
            self.ip("netns", "add", there)
            self.made.append(("netns", "del", there))
            self.ip("link", "add", f"v{n}{self.name}"[:15], "type", "veth", "peer", "name", "eth0",
                    "netns", there)
            self.ip("link", "set", f"v{n}{self.name}"[:15], "master", self.name, "up")
            self.ip("-n", there, "address", "add", f"{self.net}.{n}/24", "dev", "eth0")
            self.ip("-n", there, "link", "set", "eth0", "up")
            self.ip("-n", there, "link", "set", "lo", "up")

    def __exit__(self, *_):
        for words in reversed(self.made):
            ended(["ip", *words])

    def line(self, *args, ranks):
        """The command line of a job whose ranks are spread over the hosts."""
        hosts = ",".join(f"{self.net}.{n}:{ranks}" for n in range(1, N_HOST + 1))
        only = f"{self.net}.0/24"
        return [self.agent, f"{self.net}.1", " ".join(map(shlex.quote, map(str, [
            MPIRUN, "--mca", "plm_rsh_agent", self.agent, "--mca", "plm", "rsh", "--mca", "btl",
            "tcp,vader,self", "--mca", "btl_tcp_if_include", only, "--mca", "oob_tcp_if_include",
            only, "--map-by", "node", "--host", hosts, "-x", "OWN", "-n", ranks, STARMILL, *args])))]

    def processes(self, n):
        return [int(p) for p in ended(["ip", "netns", "pids", f"{self.name}-{n}"]).stdout.split()]


class Hosts(EndToEnd):
    def test_three_hosts(self):
        """Three hosts have one rank's bits. Faults: unshared output, fast clock, dead host."""
        fit = ("--library", library(), "--threads", 1, cut("hosts.fits", range(ROWS)))
        run("fit", "--output", tmp("alone.h5"), *fit)
        alone = read(tmp("alone.h5"))
        with Network() as network:
            def on_hosts(out, ranks, status=0, **how):
                done = ended(network.line("fit", "--output", out, *fit, ranks=ranks), **how)
                self.assertEqual(done.returncode, status, done.stderr)
                return done
            on_hosts(tmp("hosts.h5"), 5)
            self.assertEqual(differing(read(tmp("hosts.h5")), alone), [])
            folder = new_folder("own")
            done = on_hosts(f"{folder}/o.h5", 3, 4, env={"OWN": folder})
            self.assertIn("rank 2 on host host3 does not see " + folder, done.stderr)
            self.assertEqual(os.listdir(folder), [])
            # a clock that is ahead does not make a living job's lock stale
            living = begun(network.line("fit", "--output", tmp("clock.h5"), *fit, ranks=3),
                           env=faults("slow=20000:write:/clock.h5$:1:1:0"))
            wait_until(lambda: os.path.exists(tmp("clock.h5")), living)
            done = on_hosts(tmp("clock.h5"), 1, 4, env=faults("", FAULTS_CLOCK="3600"))
            self.assertIn("is being written by process", done.stderr)
            self.assertIn("watching for 30 s", done.stderr)
            self.said_by(living, 0)
            self.assertEqual(differing(read(tmp("clock.h5")), alone), [])
            # the first rank stops at its first write, so the others cannot end
            dying = begun(network.line("fit", "--output", tmp("dying.h5"), *fit, ranks=3),
                          env=faults("stop:write:/dying.h5$:1:1:0"))
            wait_until(lambda: any(map(is_suspended, network.processes(1))), dying)
            for pid in network.processes(2):
                os.kill(pid, signal.SIGKILL)
            dying.communicate(timeout=PATIENCE)
            self.assertNotEqual(dying.returncode, 0)
            on_hosts(tmp("dying.h5"), 4)
            self.assertEqual(differing(read(tmp("dying.h5")), alone), [])


STARS = list(range(2, 200, 39))
PATHO = "sim/coadd-dev-patho.fits.gz"
DEFECTS = list(range(17))
# nelder-mead is slow, so it fits only these defects, whose fits are meaningless
FEW_DEFECTS = ("z_all_nan", "inf_pixels", "b_negative_median", "pure_noise", "tiny_ivar_huge_pix")
# ranks (0: without mpirun), threads, slots, whether the input is reversed
SHARES = ((0, 4, 7, True), (3, 2, 1, True))


def inputs(defects, reverse):
    """Two files with their rows in order, or both the other way round."""
    order = slice(None, None, -1 if reverse else 1)
    name = "reversed" if reverse else "straight"
    return [cut(f"{name}-stars.fits", STARS[order]),
            cut(f"{name}-patho.fits", defects[order], name=PATHO)][order]


class SameBits(EndToEnd):
    def same_bits(self, optimizer, max_eval, defects=DEFECTS):
        files = {reverse: inputs(defects, reverse) for reverse in (False, True)}
        put("short.yaml", f"max_eval: {max_eval}\n")  # of hopeless rows, which would take thousands
        args = ("--optimizer", optimizer, "--config", tmp("short.yaml"))
        self.fit("reference.h5", "--overwrite", *args, "--threads", 1, *files[False])
        reference, catalog = read(self.path), self.catalog()
        self.assertEqual(len(np.unique(reference["TARGETID"])), len(reference["TARGETID"]))
        # the selection leaves out at most two rows, and all others are fitted
        self.assertIn(len(STARS) + len(defects) - len(reference["STATUS"]), (0, 2))
        self.assertTrue((reference["STATUS"] == FITTED).all())
        for ranks, threads, slots, reverse in SHARES:
            with self.subTest(ranks=ranks, threads=threads, slots=slots, reverse=reverse):
                self.fit("other.h5", "--overwrite", *args, "--threads", threads, "--slots", slots,
                         *files[reverse], ranks=ranks)
                other = read(self.path)
                if reverse:
                    # files and their rows are reversed, so the table's rows are reversed
                    np.testing.assert_array_equal(other["TARGETID"], reference["TARGETID"][::-1])
                    other = {name: values[::-1] for name, values in other.items()}
                self.assertEqual(differing(other, reference), [])
                self.assertEqual(differing(self.catalog(reverse), catalog), [])
        # one star in three, without those around it
        ids = list(reference["TARGETID"])
        kept = np.arange(len(ids)) % 3 == 1
        put("ids.txt", "".join(f"{ids[i]}\n" for i in np.flatnonzero(kept)))
        self.fit("other.h5", "--overwrite", *args, "--threads", 2, "--object-file",
                 tmp("ids.txt"), *files[False], ranks=2)
        for name, values in read(self.path).items():
            self.assertEqual(values.tobytes(), reference[name][kept].tobytes(), name)
        for name, values in self.catalog().items():
            self.assertEqual(values.tobytes(), catalog[name][kept].tobytes(), name)

    def catalog(self, reverse=False):
        """/catalog of the last fit without places in the inputs; reverse: turned around."""
        return {name: values[::-1] if reverse else values
                for name, values in read(self.path, "catalog").items()
                if name not in ("FILE", "FITS_ROW", "FIRST_EXPOSURE", "IDENTIFIER", "CATALOG_CRC")}

    def test_levenberg_marquardt(self):
        self.same_bits("levenberg-marquardt", 100)  # of others the worst takes 12

    def test_hybrid(self):
        self.same_bits("hybrid", 100)

    def test_nelder_mead(self):
        kinds = [str(kind).strip() for kind in pyfits.getdata(data("sim/truth-dev-patho.fits"), 1)["KIND"]]
        self.same_bits("nelder-mead", 300, [kinds.index(kind) for kind in FEW_DEFECTS])
