"""A chapter's SCORM 1.2 package: a complete manifest, and a page that keeps answers and reports the score to a platform."""

import json
import zipfile
from xml.etree import ElementTree

import pytest
from browser import Browser
from facts import raises
from pages import served
from plan import of_chapter

import minirlhf_cli as cli
from minirlhf.core import provenance
from minirlhf.core.errors import UserError
from minirlhf_course.chapters import chapters
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom import in_page, release, scorm

pytestmark = pytest.mark.slow

CONTENT = "{http://www.imsproject.org/xsd/imscp_rootv1p1p2}"
ADL = "{http://www.adlnet.org/xsd/adlcp_rootv1p2}"
CHAPTER = "05"
MOST_KEPT = 4096  # characters of cmi.suspend_data
PLATFORM = """<!doctype html><meta charset="utf-8"><title>platform</title><script>
  const values = {"cmi.core.lesson_status": "not attempted", "cmi.suspend_data": "", "cmi.interactions._count": "0", ...JSON.parse(sessionStorage.values ?? "{}")};
  const calls = [];
  let state = "new";
  const FORMS = {
    "cmi.core.score.raw": /^(100|\\d{1,2})$/, "cmi.core.score.min": /^0$/, "cmi.core.score.max": /^100$/, "cmi.core.exit": /^(time-out|suspend|logout|)$/,
    "cmi.core.lesson_status": /^(passed|completed|failed|incomplete|browsed)$/, "cmi.core.session_time": /^\\d{2,4}:\\d\\d:\\d\\d(\\.\\d{1,2})?$/,
    "cmi.suspend_data": /^[^]{0,4096}$/,
  };
  window.API = {
    LMSInitialize: (x) => { calls.push("LMSInitialize"); const fresh = state === "new" && x === ""; state = "running"; return String(fresh); },
    LMSGetValue: (name) => (state === "running" ? values[name] ?? "" : ""),
    LMSSetValue: (name, value) => {
      const part = name.match(/^cmi\\.interactions\\.(\\d+)\\.(id|type|student_response|result)$/);
      const taken = state === "running" && typeof value === "string" && (part ? Number(part[1]) <= Number(values["cmi.interactions._count"]) : FORMS[name]?.test(value));
      if (!taken) { calls.push(`refused ${name} ${value}`); return "false"; }
      if (part?.[2] === "id") values["cmi.interactions._count"] = String(Number(part[1]) + 1);
      values[name] = value;
      return "true";
    },
    LMSCommit: (x) => { sessionStorage.values = JSON.stringify(values); return String(state === "running" && x === ""); },
    LMSFinish: (x) => { calls.push("LMSFinish"); state = "ended"; return String(x === ""); },
    LMSGetLastError: () => "0", LMSGetErrorString: () => "", LMSGetDiagnostic: () => "",
  };
</script><iframe src="index.html" width="900" height="900"></iframe>"""


def manifest_faults(files):
    """What is wrong with a package's manifest by the content aggregation model of SCORM 1.2; ``files`` by name."""
    if "imsmanifest.xml" not in files:
        return ["no manifest at the root"]
    try:
        root = ElementTree.fromstring(files["imsmanifest.xml"])
    except ElementTree.ParseError as problem:
        return [f"no XML: {problem}"]
    found = [] if root.tag == f"{CONTENT}manifest" and root.get("identifier") else ["root"]
    texts = {
        name: (root.findtext(f"{CONTENT}metadata/{CONTENT}{name}") or "").strip()
        for name in ("schema", "schemaversion")
    }
    found += [] if texts == {"schema": "ADL SCORM", "schemaversion": "1.2"} else ["metadata"]
    order = [child.tag.removeprefix(CONTENT) for child in root]
    found += [] if order == ["metadata", "organizations", "resources"] else [f"order {order}"]
    identifiers = [e.get("identifier") for e in root.iter() if e.get("identifier") is not None]
    found += [f"identifier {x!r}" for x in identifiers if identifiers.count(x) > 1 or not x[:1].isalpha()]
    organizations = root.findall(f"{CONTENT}organizations/{CONTENT}organization")
    default = root.find(f"{CONTENT}organizations")
    if default is None or default.get("default") not in [o.get("identifier") for o in organizations]:
        found.append("default organization")
    resources = {r.get("identifier"): r for r in root.findall(f"{CONTENT}resources/{CONTENT}resource")}
    items = [item for o in organizations for item in o.iter(f"{CONTENT}item")]
    found += [] if items else ["no item"]
    found += [f"title of {e.get('identifier')}" for e in (*organizations, *items) if not e.findtext(f"{CONTENT}title")]
    found += [f"reference {i.get('identifierref')}" for i in items if i.get("identifierref") not in resources]
    listed = set()
    for name, resource in resources.items():
        hrefs = [file.get("href") for file in resource.findall(f"{CONTENT}file")]
        listed |= set(hrefs)
        if resource.get("type") != "webcontent" or resource.get(f"{ADL}scormtype") not in ("sco", "asset"):
            found.append(f"type of {name}")
        found += [] if resource.get("href") in hrefs else [f"start of {name}"]
    found += [f"missing {href}" for href in sorted(listed - files.keys())]
    return found + [f"unlisted {name}" for name in sorted(files.keys() - listed - {"imsmanifest.xml"})]


def unpacked(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode("utf-8") for name in archive.namelist()}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    out = tmp_path_factory.mktemp("package")
    assert cli.dispatch(["class", "export", "--to", "scorm", "--chapter", CHAPTER, "--out", str(out)]) == 0
    [path] = out.iterdir()
    return path


@pytest.fixture(scope="module")
def right(package):
    """By question, the answers that are right as they are typed, and a wrong prediction with what it is told."""
    asked = {name: ask.settled() for name, ask in scorm.book_module("asking").questions(CHAPTER).items()}
    letters = {name: "abcdefghij"[list(a.lessons).index(a.answer)] for name, a in asked.items() if a.typed is None}
    answers = {f"{CHAPTER} {n}": {"prediction": letters.get(n, str(a.answer))} for n, a in asked.items()}
    for e in sources.load(sources.folder(), [CHAPTER]):
        if in_page.table(e) is not None:
            answers[e.id] = {name: str(value) for name, value in in_page.right_answers(e).items()}
    return asked, answers


@pytest.fixture
def platform(package, tmp_path, system_tool):
    """A platform that shows the page in a frame and refuses what the standard does not allow."""
    for name, text in (unpacked(package) | {"platform.html": PLATFORM}).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with served(tmp_path) as base, Browser(system_tool("chromium"), tmp_path / "profile") as browser:
        assert browser.open(f"{base}platform.html").complaints == []
        yield browser, f"{base}platform.html"


def answer(browser, number, typed):
    """Fill in a form of the page, the ``number``-th, and hand it in; what is shown then."""
    return browser.ask(
        f"(() => {{ const form = frames[0].document.querySelectorAll('.answer-form')[{number}], given = {json.dumps(list(typed.values()))};"
        " const radio = form.querySelector(`input[type=radio][value='${given[0]}']`); if (radio) radio.checked = true;"
        " else form.querySelectorAll('label > :is(input, select)').forEach((input, i) => { input.value = given[i]; });"
        " form.querySelector('button').click(); return form.querySelector('.answer-results').textContent; })()"
    )


def test_scorm_manifest_is_complete(package):
    files = unpacked(package)
    assert manifest_faults(files) == []
    assert not [tag for tag in ("src=", "href=", "@import", "url(") if tag in files["index.html"].split("</head>")[0]]


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ('<file href="index.html"/>', "", "start of page"),
        ('"index.html"', '"start.html"', "missing start.html"),
        ('default="chapter"', 'default="book"', "default organization"),
        ('identifierref="page"', 'identifierref="pages"', "reference pages"),
        ("<schemaversion>1.2", "<schemaversion>2004", "metadata"),
        ('scormtype="sco"', 'scormType="sco"', "type of page"),
        ('identifier="questions"', 'identifier="page"', "identifier 'page'"),
        ("</manifest>", "", "no XML"),
    ],
)
def test_scorm_manifest_faults_are_found(package, before, after, fault):
    files = unpacked(package)
    assert before in files["imsmanifest.xml"]
    broken = files | {"imsmanifest.xml": files["imsmanifest.xml"].replace(before, after)}
    assert any(found.startswith(fault) for found in manifest_faults(broken))


def test_scorm_page_reports_score_and_completion(platform, right):
    browser, _ = platform
    _, answers = right
    assert browser.ask("values['cmi.core.lesson_status']") == "incomplete"
    scores = []
    for number, typed in enumerate(answers.values()):
        answer(browser, number, typed)
        scores.append(int(browser.ask("values['cmi.core.score.raw']")))
        done = browser.ask("values['cmi.core.lesson_status']")
        assert done == ("completed" if number == len(answers) - 1 else "incomplete")
    assert scores == sorted(scores) and scores[0] > 0 and scores[-1] == 100
    assert browser.ask("values['cmi.interactions._count']") == str(len(answers))
    assert browser.ask("calls") == ["LMSInitialize"]


def test_scorm_page_restores_answers_and_takes_prediction_once(platform, right):
    browser, address = platform
    asked, answers = right
    [(number, name)] = [(i, n) for i, n in enumerate(asked) if n == "further"]
    wrong = next(i for i, lesson in enumerate(asked[name].lessons.values()) if lesson)
    lesson = list(asked[name].lessons.values())[wrong]
    assert lesson.rstrip(".") in answer(browser, number, {"prediction": "abcdefghij"[wrong]})
    assert browser.ask("values['cmi.core.score.raw']") == "0"
    browser.ask("(() => { frames[0].dispatchEvent(new Event('pagehide')); return 0; })()")
    assert browser.ask("calls") == ["LMSInitialize", "LMSFinish"]
    browser.open(address)
    form = f"frames[0].document.querySelectorAll('.answer-form')[{number}]"
    assert browser.ask(f"[...{form}.querySelectorAll('input, button')].every((one) => one.disabled)")
    assert browser.ask(f"{form}.querySelector('input:checked').value") == "abcdefghij"[wrong]
    [number] = [i for i, n in enumerate(answers) if n == f"{CHAPTER} cache"]
    cache = f"frames[0].document.querySelectorAll('.answer-form')[{number}].querySelector('button').disabled"
    assert answer(browser, number, {"prediction": "many"}) and not browser.ask(cache)
    assert asked["cache"].lessons["low"].rstrip(".") in answer(browser, number, {"prediction": "1"})
    assert browser.ask(cache)
    assert browser.ask("values['cmi.interactions._count']") == "2"


def test_scorm_page_works_without_platform(package, tmp_path, system_tool, right):
    (tmp_path / "index.html").write_text(unpacked(package)["index.html"], encoding="utf-8")
    with Browser(system_tool("chromium"), tmp_path / "profile") as browser:
        assert browser.open((tmp_path / "index.html").as_uri()).complaints == []
        forms = browser.ask("document.querySelectorAll('.answer-form').length")
    assert forms == len(right[1])


def decrypted(key, hidden):
    pairs = [int(hidden[i : i + 2], 16) for i in range(0, len(hidden), 2)]
    return bytes(byte ^ in_page.fnv(f"{key}|+{i}") >> 8 & 0xFF for i, byte in enumerate(pairs)).decode()


@pytest.mark.parametrize("unit", ["%", ""])
def test_scorm_prediction_intervals_are_those_of_the_book(unit):
    asking = scorm.book_module("asking")
    near = asking.Typed(within=2.0, factor=True, low="Too small.", high="Too large.", unit=unit)
    settled = asking.Settled("?", {"low": "Too small.", "high": "Too large."}, 20.0, "", near, {})
    entry = scorm.prediction("05", "x", settled)["answers"]["prediction"]
    assert (entry["unit"], entry["large"]) == (unit, True)

    def judged(x):
        for exponent in dict.fromkeys(int(key.split(":")[0]) for key in entry["verdicts"]):
            key = f"05 x|prediction|{exponent}:{int(x // 2.0**exponent)}"
            if hidden := entry["verdicts"].get(f"{exponent}:{in_page.digest(key)}"):
                low, high, passed, message = json.loads(decrypted(key, hidden))
                if low <= x <= high:
                    return passed, message
        return None

    assert [judged(x) for x in (9.9, 10.0, 40.0, 40.1)] == [
        (False, "Too small."),
        (True, ""),
        (True, ""),
        (False, "Too large."),
    ]


def test_scorm_refuses_chapter_without_questions(monkeypatch):
    monkeypatch.setattr(in_page, "table", lambda e: None)
    with raises(UserError, argument="--chapter", value="00", problem="empty"):
        scorm.questions("00", sources.load(sources.folder(), ["00"]))


def test_scorm_names_missing_book(monkeypatch, tmp_path):
    monkeypatch.setattr(scorm, "BOOK", tmp_path)
    scorm.book_module.cache_clear()
    with raises(UserError, file=str(tmp_path), problem="missing"):
        scorm.book_module("asking")
    scorm.book_module.cache_clear()


def test_archive_is_the_same_for_the_same_files():
    files = {"a.sh": "#!/bin/sh\n", "b.txt": "é"}
    assert release.archive(files) == release.archive(dict(files))


@pytest.mark.release
@pytest.mark.parametrize("number", [of_chapter(c.number, f"{c.number:02}", id="scorm") for c in chapters()])
def test_scorm_package_of_chapter_is_complete_and_answers_fit(number):
    exercises = sources.load(provenance.ROOT / "exercises", [number])
    files = scorm.files(number, exercises)
    assert manifest_faults(files) == []
    data = [json.loads(q["data"].replace("<\\/", "</")) for q in scorm.questions(number, exercises)]
    longest = {d["id"]: dict.fromkeys(d["answers"], "-1234567.89 %") for d in data}
    assert len(json.dumps(longest)) < MOST_KEPT
