"""Prints "passed failed skipped" of a JUnit report written by ctest: junit_counts.py REPORT.xml"""

import sys
import xml.etree.ElementTree as xml


def main(path: str) -> None:
    counts = {"run": 0, "fail": 0, "notrun": 0, "disabled": 0}
    for case in xml.parse(path).getroot().iter("testcase"):
        counts[case.get("status", "fail")] = counts.get(case.get("status", "fail"), 0) + 1
    print(counts["run"], counts["fail"], counts["notrun"] + counts["disabled"])


if __name__ == "__main__":
    main(sys.argv[1])
