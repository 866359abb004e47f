# SPDX-License-Identifier: BSD-3-Clause
"""A few of the kills of tests/campaigns/kill: what they leave opens, is whole, and continues."""

from common import *  # noqa: F403
import kill_runs

N_KILL = 8


class Kill(EndToEnd):
    def test_killed_at_random(self):
        put("kill.yaml", "write_interval: 0.1\n")
        options = ["--config", tmp("kill.yaml"), "--threads", "1", "--optimizer",
                   "levenberg-marquardt", "--quiet"]
        campaign = kill_runs.Campaign(library(), [cut("a.fits", range(10)),
                                                  cut("b.fits", range(50, 60))],
                                      options, TMP, seed=os.getpid(), most_ranks=2)
        print("seed", os.getpid())
        life = 0
        try:
            while campaign.count["kills"] < N_KILL:
                life += 1
                campaign.kill_once(f"life{life}")
        except kill_runs.Failed as failure:
            self.fail(f"seed {os.getpid()}: {failure}")
        self.assertGreaterEqual(campaign.count["kills"], N_KILL)


if __name__ == "__main__":
    main()
