"""Rows in the layouts of public data sets are read as the record that their authors mean; ties and deleted rows are dropped."""

import itertools
import json
import math

import pytest
from facts import raises
from test_real_files import BARE, bytes_tokenizer, every_special, write_rows

from minirlhf.core.errors import UserError
from minirlhf.data import chat
from minirlhf.data.loaders import load
from minirlhf.data.records import Conversation
from minirlhf.models.tokenizers import write_beginning
from minirlhf_cli import dispatch


def asks(content):
    return {"role": "user", "content": content}


def says(content):
    return {"role": "assistant", "content": content}


PAIR = {"prompt": "q", "chosen": "good", "rejected": "bad"}
ARENA = {"model_a": "x", "model_b": "y", "turn": 1, "conversation_a": [asks("q"), says("good")],
         "conversation_b": [asks("q"), says("bad")]}  # fmt: skip
TEXTS = {"prompt": '["q", "r"]', "response_a": '["bad", "c"]', "response_b": '["good", "d"]', "winner_tie": 0}
SAFE = {"prompt": "q", "response_0": "good", "response_1": "bad", "better_response_id": 0, "safer_response_id": 1}
INFO = {"id": "t3", "post": "I cook.", "title": "Soup", "subreddit": "food", "article": None}
ATTRIBUTES = {"helpfulness": 3, "correctness": 4, "coherence": 4, "complexity": 1, "verbosity": 0}
TOOL = {"name": "look", "description": "look", "parameters": {"place": {"type": "str"}}}
CALL = {"name": "look", "arguments": {"place": "Rome"}}
CHOICES = {"question": "q", "choices": ["x", "y"], "answer": 1}
#: A row as its authors write it, its format, and the same in one of the plain formats.
SAME = {
    "SHP, A": ({"history": "q", "human_ref_A": "good", "human_ref_B": "bad", "labels": 1, "score_ratio": 2.0}, "shp", PAIR),
    "SHP, B": ({"history": "q", "human_ref_A": "bad", "human_ref_B": "good", "labels": 0, "score_ratio": 2.0}, "shp", PAIR),
    "PKU-SafeRLHF": (SAFE, "safe-rlhf", PAIR),
    "PKU-SafeRLHF, second": ({**SAFE, "response_0": "bad", "response_1": "good", "better_response_id": 1}, "safe-rlhf", PAIR),
    "BeaverTails": ({"prompt": "q", "response": "bad", "is_safe": False, "category": {}}, "safety",
                    {"prompt": "q", "completion": "bad", "label": False}),
    "HelpSteer2": ({"prompt": "q", "response": "so", **ATTRIBUTES}, "helpsteer", {"prompt": "q", "completion": "so", "rating": 3}),
    "a rating": ({"prompt": "q", "response": "so", "rating": 4}, "response-rating", {"prompt": "q", "completion": "so", "rating": 4}),
    "ms-swift": ({"messages": [asks("q"), says("good")], "rejected_response": "bad"}, "swift-preference", PAIR),
    "messages, pair": ({"messages": [asks("q")], "chosen": [says("good")], "rejected": [says("bad")]}, "messages-preference", PAIR),
    "messages, whole": ({"messages": [asks("q"), says("good")], "chosen": [asks("q"), says("good")],
                         "rejected": [asks("q"), says("bad")]}, "messages-preference", PAIR),
    "prompt and response": ({"prompt": "q", "response": "a"}, "prompt-response", {"prompt": "q", "completion": "a"}),
    "question and answer": ({"id": 3, "question": "q", "answer": 70}, "question-answer", {"prompt": "q", "answer": 70, "solution": "70"}),
    "MMLU-Pro": ({"question": "q", "options": ["x", "y"], "answer": "B", "answer_index": 1}, "mmlu-pro", CHOICES),
    "MedQA": ({"question": "q", "options": {"A": "x", "B": "y"}, "answer": "y", "answer_idx": "B"}, "mmlu-pro", CHOICES),
    "HelpSteer2, pair": ({"prompt": "q", "response_1": "good", "response_2": "bad", "preference_strength": -2},
                         "helpsteer2-preference", {**PAIR, "margin": 2}),
    "HelpSteer3": ({"context": [asks("q")], "response1": "bad", "response2": "good", "overall_preference": 3, "domain": "code"},
                   "helpsteer3", {**PAIR, "margin": 3}),
    "HelpSteer3, first": ({"context": [asks("q")], "response1": "good", "response2": "bad", "overall_preference": -1},
                          "helpsteer3", {**PAIR, "margin": 1}),
    "Arena": ({**ARENA, "winner": "model_a"}, "arena", PAIR),
    "Arena, other side": ({**ARENA, "winner": "model_b"}, "arena", {**PAIR, "chosen": "bad", "rejected": "good"}),
    "LMSYS, texts": ({**TEXTS, "winner_model_a": 0, "winner_model_b": 1}, "arena-texts",
                     {"prompt": "q", "chosen": [says("good"), asks("r"), says("d")], "rejected": [says("bad"), asks("r"), says("c")]}),
    "A or B": ({"prompt": "q", "response_a": "bad", "response_b": "good", "winner": "B"}, "a-or-b", PAIR),
    "summaries": ({"info": INFO, "summaries": [{"text": "bad"}, {"text": "good"}], "choice": 1, "worker": "w"}, "summaries",
                  {**PAIR, "prompt": "SUBREDDIT: r/food\nTITLE: Soup\nPOST: I cook.\nTL;DR:"}),
    "a summary": ({"info": {"post": None, "article": "News."}, "summary": {"text": "so", "axes": {"overall": 6}}}, "summary",
                  {"prompt": "News.\n\nTL;DR:", "completion": "so", "rating": 6}),
    "WebGPT": ({"question": {"full_text": "q"}, "answer_0": "bad", "answer_1": "good", "score_0": -0.5, "score_1": 0.5}, "webgpt",
               {**PAIR, "margin": 1}),
    "Orca pairs": ({"system": "be kind", "question": "q", "chosen": "good", "rejected": "bad"}, "question-preference",
                   {**PAIR, "system": "be kind"}),
    "LLaMA-Factory, pair": ({"instruction": "do", "input": "it", "chosen": "good", "rejected": "bad"}, "alpaca-preference",
                            {**PAIR, "prompt": "do\n\nit"}),
    "Axolotl, pair": ({"input": "q", "chosen": "good", "rejected": "bad"}, "input-preference", PAIR),
    "LLaMA-Factory, KTO": ({"instruction": "q", "input": "", "output": "bad", "kto_tag": False}, "alpaca-kto",
                           {"prompt": "q", "completion": "bad", "label": False}),
    "ShareGPT, KTO": ({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}], "kto_tag": True},
                      "sharegpt-kto", {"prompt": "q", "completion": "a", "label": True}),
    "Nectar": ({"prompt": "\n\nHuman: q\n\nAssistant: ", "num_responses": 2, "answers": [
        {"answer": "bad", "model": "m", "rank": 2.0}, {"answer": "good", "model": "m", "rank": 1.0}]}, "nectar",
        {"prompt": "q", "responses": ["good", "bad"]}),
    "Stack Exchange": ({"question": "q", "answers": [{"text": "bad", "pm_score": 1}, {"text": "good", "pm_score": 3}]},
                       "stack-exchange", {"prompt": "q", "responses": ["good", "bad"], "scores": [3, 1]}),
    "xLAM": ({"query": "q", "answers": json.dumps([CALL]), "tools": json.dumps([TOOL])}, "xlam",
             {"messages": [asks("q"), {"role": "assistant", "content": None, "tool_calls": [CALL]}], "tools": [TOOL]}),
    "BFCL": ({"id": "simple_0", "question": [[asks("q")]], "function": [TOOL]}, "bfcl", {"prompt": "q", "tools": [TOOL]}),
    "Capybara": ({"source": "x", "conversation": [{"input": "q", "output": "a"}, {"input": "r", "output": "b"}]}, "conversation",
                 {"messages": [asks("q"), says("a"), asks("r"), says("b")]}),
    "LMSYS-Chat": ({"conversation": [asks("q"), says("a")], "language": "English"}, "conversation",
                   {"messages": [asks("q"), says("a")]}),
    "Dolly": ({"instruction": "do", "context": "it", "response": "a", "category": "qa"}, "dolly",
              {"instruction": "do", "input": "it", "output": "a"}),
    "Orca": ({"system_prompt": "be kind", "question": "q", "response": "a"}, "orca",
             {"system": "be kind", "prompt": "q", "completion": "a"}),
    "question and response": ({"question": "q", "response": "a", "system": "be kind"}, "question-response",
                              {"prompt": "q", "completion": "a", "system": "be kind"}),
    "query and response": ({"query": "q", "response": "a", "type": "GSM"}, "query-response", {"prompt": "q", "completion": "a"}),
    "input and output": ({"input": "q", "output": "a"}, "input-output", {"prompt": "q", "completion": "a"}),
    "instruction and response": ({"instruction": "do", "input": "it", "response": "a"}, "instruction-response",
                                 {"prompt": "do\n\nit", "completion": "a"}),
    "OpenAI, pair": ({"input": {"messages": [asks("q")], "tools": [TOOL]}, "preferred_output": [says("good")],
                      "non_preferred_output": [says("bad")]}, "openai-preference", {**PAIR, "tools": [TOOL]}),
    "ARC": ({"question": "q", "choices": {"text": ["x", "y"], "label": ["1", "2"]}, "answerKey": "2"}, "arc", CHOICES),
    "HellaSwag": ({"ctx": "q", "endings": ["x", "y"], "label": "1"}, "hellaswag", CHOICES),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_load_layout_of_public_data_as_the_plain_record(name):
    row, form, plain = SAME[name]
    [found], [expected] = (load([each]).examples for each in (row, plain))
    assert (load([row]).format, found) == (form, expected)
    assert found.columns == row, "a grader reads the fields under their own names"


def test_load_lists_of_completions_compares_each_chosen_with_each_rejected():
    for chosen, rejected in ((["a"], ["c", "d", "e"]), (["a", "b", "c"], ["d", "e", "f"]), ("a", ["b", "c"])):
        pairs = load([{"prompt": "q", "chosen": chosen, "rejected": rejected, "subset": "Ties"}]).comparisons()
        found = [(pair.chosen[0]["content"], pair.rejected[0]["content"]) for pair in pairs]
        assert found == list(itertools.product(chosen, rejected))
        assert {(pair.subset, pair.num_ranked) for pair in pairs} == {("Ties", len(chosen) + len(rejected))}
    with raises(UserError, argument="rejected", problem="duplicate"):
        load([{"prompt": "q", "chosen": ["a", "b"], "rejected": ["c", "b"]}])


def test_load_question_and_answer_are_gsm8k_if_one_of_them_has_its_mark():
    rows = [{"question": "q", "answer": "so\n#### 7"}, {"question": "q", "answer": "7"}]
    assert load(rows[:1]).format == "gsm8k" and load(rows[1:]).format == "question-answer"
    with raises(UserError, argument="answer", expected="####", line=2):
        load(rows)


def test_load_helpsteer_by_another_attribute():
    row = {"prompt": "q", "response": "so", **ATTRIBUTES}
    for name in ATTRIBUTES:
        [found] = load([row], fields={"rating": name}).examples
        assert found.scores == (ATTRIBUTES[name],)


def test_load_messages_that_numpy_printed():
    whole = {name: f"[{asks('q')}\n {says(name)}]" for name in ("chosen", "rejected")}
    [found] = load([whole]).comparisons()
    assert (found.prompt, found.chosen, found.rejected) == ([asks("q")], [says("chosen")], [says("rejected")])


def test_load_calls_leaves_out_the_nulls_of_a_table():
    """A table gives every call the arguments of all calls, and every schema the properties of all schemas."""
    tool = {"name": "look", "parameters": {"properties": {"place": {"type": "string", "enum": None}, "day": None}}}
    for arguments, kept in (({"place": "Rome", "day": None}, {"place": "Rome"}), ('{"day": null}', {"day": None})):
        turn = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"function": {"name": "look", "arguments": arguments}}],
        }
        [found] = load([{"messages": [asks("q"), turn], "tools": [tool]}]).examples
        assert found.messages[1]["tool_calls"][0]["function"]["arguments"] == kept
        properties = found.messages[0]["tools"][0]["function"]["parameters"]["properties"]
        assert properties == {"place": {"type": "string"}}


def test_load_calls_that_stand_in_the_content_too_are_read_once():
    written = f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>"
    for content, kept in ((written, ""), (f"I look.\n{written}", "I look."), ("<tool_call>{}</tool_call>", None)):
        turn = {**says(content), "tool_calls": [{"function": CALL}]}
        [found] = load([{"messages": [asks("q"), turn], "tools": [TOOL]}]).examples
        assert found.messages[1]["content"] == (content if kept is None else kept)
        assert [call["function"] for call in found.messages[1]["tool_calls"]] == [CALL]


def test_load_notes_tools_that_a_message_describes_too():
    system = {"role": "system", "content": f"<tools>{json.dumps([TOOL])}</tools>"}
    row = {"messages": [system, asks("q"), says("so")]}
    assert [len(load([{**row, **more}]).notes()) for more in ({}, {"tools": [TOOL]})] == [0, 1]
    assert not load([{"messages": [asks("q"), says("so")], "tools": [TOOL]}]).notes()


@pytest.mark.parametrize("name", ["weight", "loss", "train"])
def test_load_turns_that_are_not_learned_are_context(name):
    turns = [asks("q"), {**says("a"), name: False}, asks("r"), {**says("b"), name: True}]
    records = load([{"messages": turns}])
    assert [(e.context, records.ignored) for e in records.examples] == [(3, ())]


def test_load_json_of_rows_in_an_object_and_of_columns(tmp_path):
    file = tmp_path / "x.json"
    file.write_text(json.dumps({"data": [{"prompt": "q", "completion": "a"}] * 2}))
    assert len(load(file)) == 2
    for columns in ({"prompt": {"0": "q"}, "completion": {"0": "a"}}, {"prompt": ["q"], "completion": ["a"]}):
        file.write_text(json.dumps(columns))
        with raises(UserError, problem="columns", file=str(file), value=list(columns)):
            load(file)


def test_load_safe_rlhf_by_its_other_label():
    [found] = load([SAFE], format="safe-rlhf-safer").comparisons()
    assert (found.chosen, found.rejected) == ([says("bad")], [says("good")])
    assert "safer_response_id" in load([SAFE]).ignored


def test_load_answers_that_are_texts_are_no_ranking():
    assert load([{"prompt": "q", "answers": ["a", "b"]}]).format == "problem"
    assert load([{"prompt": "q", "answers": ["a", "b"]}], fields={"answer": "answers"}).problems()[0].answers == (
        "a",
        "b",
    )


#: A row in which nothing is better, or that lacks what is needed, and the problem and the argument of dropping it.
DROPPED = {
    "HelpSteer3": ({"context": [asks("q")], "response1": "a", "response2": "b", "overall_preference": 0}, "tied", "rejected"),
    "Arena": ({**ARENA, "winner": "tie"}, "tied", "rejected"),
    "Arena, both bad": ({**ARENA, "winner": "tie (bothbad)"}, "tied", "rejected"),
    "LMSYS": ({**TEXTS, "winner_model_a": 0, "winner_model_b": 0, "winner_tie": 1}, "tied", "rejected"),
    "LMSYS, a null": ({**TEXTS, "response_b": "[null, null]", "winner_model_a": 1, "winner_model_b": 0}, "empty", "response_b"),
    "WebGPT": ({"question": "q", "answer_0": "a", "answer_1": "b", "score_0": 0, "score_1": 0}, "tied", "rejected"),
    "Nectar": ({"prompt": "q", "answers": [{"answer": text, "rank": 1} for text in "ab"]}, "tied", "responses"),
    "ARC": ({"question": "q", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": ""}, "empty", "answerKey"),
    "HellaSwag": ({"ctx": "q", "endings": ["x", "y"], "label": ""}, "empty", "label"),
    "no post": ({"info": {"post": "", "article": None}, "summaries": [{"text": "a"}, {"text": "b"}], "choice": 0}, "empty", "info"),
}  # fmt: skip


@pytest.mark.parametrize("name", DROPPED)
def test_load_layout_drops_rows_that_teach_nothing(name):
    row, problem, argument = DROPPED[name]
    with raises(UserError, problem=problem, argument=argument, value=1):
        load([row])


#: A row with a field that cannot be read, and the facts of the error.
REFUSED = {
    "label": ({"history": "q", "human_ref_A": "a", "human_ref_B": "b", "labels": 2}, {"argument": "labels", "value": 2}),
    "winner": ({**ARENA, "winner": "x"}, {"argument": "winner", "value": "x"}),
    "winner by number": ({"prompt": "q", "response_a": "a", "response_b": "b", "winner": 1}, {"argument": "winner", "value": 1}),
    "two winners": ({**TEXTS, "winner_model_a": 1, "winner_model_b": 1}, {"argument": "winner_model_a", "value": [1, 1, 0]}),
    "strength": ({"context": [asks("q")], "response1": "a", "response2": "b", "overall_preference": "first"},
                 {"argument": "overall_preference", "value": "first"}),
    "lengths": ({**TEXTS, "response_b": '["good"]', "winner_model_a": 1, "winner_model_b": 0}, {"argument": "response_b", "expected": 2}),
    "no texts": ({**TEXTS, "response_b": "good", "winner_model_a": 1, "winner_model_b": 0}, {"argument": "response_b", "expected": "list"}),
    "one summary": ({"info": INFO, "summaries": [{"text": "a"}], "choice": 0}, {"argument": "summaries", "expected": "text"}),
    "info": ({"info": "x", "summaries": [{"text": "a"}, {"text": "b"}], "choice": 0}, {"argument": "info", "expected": "object"}),
    "no axes": ({"info": INFO, "summary": {"text": "a", "axes": 6}}, {"argument": "summary"}),
    "an answer": ({"prompt": "q", "answers": [{"answer": "a", "rank": 1}, {"answer": "b"}]}, {"argument": "answers[1]"}),
    "turns of BFCL": ({"question": [[asks("q")], [asks("r")]], "function": [TOOL]}, {"argument": "question", "value": 2}),
    "no messages": ({"input": "q", "preferred_output": [says("a")], "non_preferred_output": [says("b")]},
                    {"argument": "input", "expected": "messages"}),
    "label of ARC": ({"question": "q", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "C"},
                     {"argument": "answerKey", "expected": ["A", "B"]}),
    "choices of ARC": ({"question": "q", "choices": {"text": ["x"]}, "answerKey": "C"}, {"argument": "choices"}),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_load_layout_refuses_what_cannot_be_read(name):
    row, facts = REFUSED[name]
    with raises(UserError, line=1, **facts):
        load([row])


# -- trees ---------------------------------------------------------------------------------------------------------------


def message(number, parent, role, text, **more):
    row = {"message_id": number, "parent_id": parent, "role": role, "text": text, "lang": "en", "rank": None}
    return {**row, "deleted": False, **more}


TREE = [
    message("1", None, "prompter", "q"),
    message("2", "1", "assistant", "worse", rank=1),
    message("3", "1", "assistant", "best", rank=0),
    message("4", "1", "assistant", "unranked"),
    message("5", "3", "prompter", "r", lang="es"),
    message("6", "5", "assistant", "so"),
    message("7", "5", "assistant", "gone", deleted=True, rank=0),
    message("8", "7", "prompter", "s"),
    message("9", "8", "assistant", "under a deleted message"),
]


def whole(number):
    """The same as one object, without the ids of parents."""
    [found] = [m for m in TREE if m["message_id"] == number]
    children = [whole(m["message_id"]) for m in TREE if m["parent_id"] == number]
    return {**{key: value for key, value in found.items() if key != "parent_id"}, "replies": children}


@pytest.mark.parametrize(
    "rows", [TREE, TREE[::-1], [{"message_tree_id": "1", "prompt": whole("1")}]], ids=["rows", "any order", "trees"]
)
def test_load_message_tree_ranks_the_replies(rows):
    records = load(rows)
    found = sorted(records.rankings() + [e for e in records.examples if len(e.tiers) == 1], key=lambda e: len(e.prompt))
    assert [(e.prompt, e.strict()) for e in found] == [
        ([asks("q")], [[says("best")], [says("worse")]]),
        ([asks("q"), says("best"), asks("r")], [[says("so")]]),
    ]
    assert sorted((d.argument, d.problem) for d in records.dropped) == [
        ("deleted", "deleted"),
        ("parent_id", "missing"),
    ]
    assert [c.messages[-1] for c in records.conversations()] in ([says("best"), says("so")], [says("so"), says("best")])
    assert len(records.comparisons()) == 1 and len(records.notes()) == 2, "two languages, and a single reply"


def test_load_message_tree_of_pandas_has_nan_for_null():
    rows = [{name: math.nan if value is None else value for name, value in row.items()} for row in TREE]
    assert load(rows).examples == load(TREE).examples


def test_load_message_tree_with_a_loop_or_without_ranks_is_dropped():
    loop = [message("1", "2", "prompter", "q"), message("2", "1", "assistant", "a")]
    with raises(UserError, argument="parent_id", problem="missing"):
        load(loop)
    with raises(UserError, argument="rank", problem="tied"):
        load([TREE[0], {**TREE[1], "rank": None}, {**TREE[2], "rank": None}])


@pytest.mark.parametrize(("field", "value"), [("message_id", [{}]), ("role", ["prompter"]), ("role", "system")])
def test_load_message_tree_names_what_is_wrong_in_a_row(field, value):
    with raises(UserError, argument=field, value=value, line=1):
        load([{**TREE[0], field: value}, *TREE[1:]])


# -- plain texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", [None, BARE, chat.CHATML], ids=["none", "no marks", "marks"])
def test_encode_plain_text_learns_it_whole_without_a_template(template):
    tokenizer = bytes_tokenizer(template)
    write_beginning(tokenizer)
    records = load([{"text": "once\n", "system": "be kind"}, {"text": "<|begin|>twice<|end|>"}])
    assert records.ignored == ("system",)
    for c, text in zip(records.conversations(), ("<|begin|>once\n<|end|>", "<|begin|>twice<|end|>"), strict=True):
        for encoded in (chat.encode(tokenizer, c.messages), chat.encode_whole(tokenizer, c.messages)):
            assert encoded.input_ids == tokenizer(text, add_special_tokens=False)["input_ids"]
            assert all(encoded.loss_mask)


def test_load_plain_texts_are_no_prompts_and_empty_ones_are_dropped():
    records = load([{"text": "once", "label": 1}, {"text": " "}])
    assert records.examples == (Conversation([{**says("once"), "verbatim": True}]),)
    assert [(d.argument, d.problem) for d in records.dropped] == [("text", "empty")]
    assert records.ignored == ("label",)
    with raises(UserError, expected="Problem"):
        records.problems()


def test_records_notes_name_marks_of_turns_in_plain_texts():
    assert len(load([{"text": "<|im_start|>user\nq<|im_end|>"}]).notes()) == 1
    assert load([{"text": "once upon a time"}]).notes() == []


def test_train_plain_texts_and_refuse_to_export_them(tmp_path, capsys):
    data = write_rows(tmp_path / "d.jsonl", [{"text": f"once upon a time {i}"} for i in range(4)])
    run = tmp_path / "run"
    assert dispatch(["data", "inspect", str(data)]) == 0
    assert "100%" in capsys.readouterr().out
    assert (
        dispatch(["train", "sft", "--data", str(data), "--out", str(run), "--max-steps", "2", "--batch-size", "2"]) == 0
    )
    with raises(UserError, argument="format", value="text", problem="no counterpart"):
        dispatch(["export", str(run), "--to", "trl", "--out", str(tmp_path / "trl")])


def test_data_formats_lists_every_format(capsys):
    assert dispatch(["data", "formats"]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n{load([row]).format}\n" in f"\n{printed}" for row, _, _ in SAME.values())


def test_template_of_public_calls_learns_them():
    [found] = load([SAME["xLAM"][0]]).conversations()
    tokens = chat.encode(tokenizer := every_special(chat.CHATML), found.messages)
    assert '"place": "Rome"' in tokenizer.decode([t for t, m in zip(*vars(tokens).values(), strict=True) if m])
