# SPDX-License-Identifier: BSD-3-Clause
"""Command lines of the Python jobs: argparse with messages and layout of option_table.c."""

import argparse
import math
import re

from starmill.cli.basics import PACKAGES, USAGE, Failure, did_you_mean, need


def with_facts(text, *facts):
    """Append facts in brackets to a help text, or inside the brackets at its end."""
    said = "; ".join(fact for fact in facts if fact)
    if not said:
        return text
    return f"{text[:-1]}; {said})" if text.endswith(")") else f"{text} ({said})"


def shown(number):
    return str(number) if isinstance(number, int) else f"{number:g}"


def either(words, last="or"):
    return ", ".join(words[:-1]) + f" {last} {words[-1]}"


def number_of(text):
    """Return the text; ValueError for forms that only Python takes as numbers (1_000, blanks)."""
    need(re.fullmatch(r"[-+.a-zA-Z0-9]+", text), ValueError, text)
    return text


class Once(argparse.Action):
    """An option that may be given only once."""

    def __call__(self, parser, options, value, name=None):
        need(getattr(options, self.dest) is None, USAGE,
             f"{name} is given twice; see {parser.prog} --help")
        setattr(options, self.dest, value)


class Job(argparse.ArgumentParser):
    """Options of a job.

    module     module below starmill; its main(options) may return an exit status.
               options.arguments: the words of the command line that are not options
    usage      text after the name in the usage line
    about      text before the options
    needs      names of the modules that the job imports; more: text on modules that some uses need
    end        text after the options
    takes      (least number, largest number, description) of the arguments
    exclusive  [names of options of which at most one may be given]
    """
    is_shared = False  # True: several processes share the work, so BLAS uses one thread

    def __init__(self, name, module, usage, about, needs, end, takes, more=""):
        self.packages = needs.split()
        pip = either([PACKAGES.get(name, name) for name in self.packages], "and")
        end = ("Runs python3, or the Python that the environment variable STARMILL_PYTHON names; "
               f"it needs\n{pip}{more}.\n{end}")
        super().__init__(f"starmill {name}", f"starmill {name} {usage}", about, end, add_help=False,
                         formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
                             prog, max_help_position=40, width=90))
        self.module, self.takes = f"starmill.{module}", takes
        self.group, self.needed, self.exclusive = None, [], []

    def heading(self, title):
        self.group = self.add_argument_group(title)

    def add(self, name, says, metavar="FILE", check=lambda text: text, needed=False, **how):
        """Add an option.  check(text) returns its value or raises ValueError("a number", say)."""
        self.needed += [(name, metavar)] * needed

        def value(text):
            need(text, USAGE,
                 f"option --{name} needs a value, not an empty text; see {self.prog} --help")
            try:
                return check(text)
            except ValueError as error:
                raise Failure(USAGE, f"--{name} takes {error}, not '{text[:80]}'") from error
        if not self.group:
            self.heading("options")
        if "action" not in how or how["action"] is Once:
            how.update(type=value, metavar=metavar)
        self.group.add_argument(f"--{name}", help=says.replace("%", "%%"), **how)

    def flag(self, name, says):
        self.add(name, says, action="store_true")

    def choice(self, name, words, default, says, metavar="NAME"):
        def check(text):
            need(text in words, ValueError, either(words))
            return text
        self.add(name, with_facts(says, either(words)), metavar, check, default=default)

    def number(self, name, least, most, says, default=None, kind=int, metavar=None, above=False):
        """Add an option for an int or float (kind): least to most or, with `above`, over least."""
        what = "an integer" if kind is int else "a number"
        low, high = shown(least), shown(most)
        bounds = f" above {low}" if above else f", {low} or more" if most == math.inf else \
            f" from {low} to {high}"

        def check(text):
            try:
                value = kind(number_of(text))
            except ValueError:
                value = math.nan
            need((least < value if above else least <= value <= most) and value < math.inf,
                 ValueError, what + bounds)
            return value
        self.add(name, with_facts(says, "" if default is None else f"default {shown(default)}",
                                  f"{low} to {high}" if most <= 1e6 else ""),
                 metavar or ("N" if kind is int else "X"), check, default=default)

    def pair(self, name, metavar, says, default=None, least=-math.inf, most=math.inf):
        """Add an option of two numbers from least to most, ascending if most is finite."""
        bounded = f" from {least:g} to {most:g}" if most < math.inf else ""

        def check(text):
            try:
                first, second = (float(number_of(part)) for part in text.split(","))
            except ValueError:
                first = second = math.nan
            need(all(math.isfinite(x) and least <= x <= most for x in (first, second))
                 and (first <= second or not bounded), ValueError,
                 f"{metavar}, two numbers{bounded}")
            return first, second
        self.add(name, says, metavar, check, default=default)

    def format_help(self):
        return re.sub(r"(?m)^(options:\n|(\w+):)(?=\n?  --)", lambda match: match[2] or "",
                      super().format_help())

    def error(self, message):
        """Raise a Failure with argparse's message in the program's words."""
        name = re.match(r"argument (--[\w-]+)|ambiguous option: (\S+)", message)
        if "expected one argument" in message:
            message = f"option {name[1]} needs a value"
        elif "ignored explicit argument" in message:
            message = f"wrongly used option {name[1]}, which takes no value"
        elif name and name[2]:
            self.refuse(name[2])
        raise Failure(USAGE, f"{message}; see {self.prog} --help")

    def refuse(self, word):
        known = [name for action in self._actions for name in action.option_strings]
        word_alone = word.split("=")[0]
        near = [name for name in known if name.startswith(word_alone)]
        raise Failure(USAGE, f"unknown or ambiguous option {word}"
                      f"{did_you_mean(word_alone, known, near)}; see {self.prog} --help")

    def read(self, words):
        """Return the options; None: the help was printed."""
        self.flag("help", "this text")
        self.add_argument("-h", action="store_true", dest="help", help=argparse.SUPPRESS)
        end = words.index("--") if "--" in words else len(words)
        options, rest = self.parse_known_args(words[:end])
        for word in rest:
            if re.fullmatch(r"-[^\d\s]\S*", word):
                self.refuse(word)
        if options.help:
            print(self.format_help(), end="")
            return None
        options.arguments = rest + words[end + 1:]
        least, most, what = self.takes
        n = len(options.arguments)
        need(least <= n <= most, USAGE,
             f"give {what}, not {n} argument{'s' * (n != 1)}; see {self.prog} --help")
        for names in self.exclusive:
            values = [getattr(options, name.replace("-", "_")) for name in names]
            need(sum(value is not None and value is not False for value in values) <= 1, USAGE,
                 f"{either([f'--{name}' for name in names], 'and')} exclude each other: give only "
                 f"one of them; see {self.prog} --help")
        missing = [f"--{name} {metavar}" for name, metavar in self.needed
                   if getattr(options, name) is None]
        need(not missing, USAGE, f"give {' and '.join(missing)}; see {self.prog} --help")
        return options
