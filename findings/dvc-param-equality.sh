#!/usr/bin/env bash
# DVC compares parameters as Python does: true is 1, and NaN is never itself.
#
# Versions: dvc 3.67.1, pathspec 1.1.1.
#
# A stage of a DVC pipeline that names a parameter is run again when the value in
# params.yaml is not the one in dvc.lock. dvc params diff shows what has changed.
#
# Expected: a parameter changed from true to 1 or 1.0 (another type, and another text
# in the file) makes its stage stale; a parameter that is .nan and is left alone (a
# usual way to say "no clipping") is unchanged once its stage has run.
# Seen: the other way round. After true -> 1 -> 1.0, dvc status has nothing to say,
# dvc repro skips the stage, dvc params diff does not list it, and dvc.lock goes on
# saying true. With .nan, dvc status calls the stage changed straight after dvc repro
# and for ever after, and dvc params diff lists a change from nan to nan; dvc repro
# then does not run the command but takes the outputs from its run cache, so the two
# parts of DVC do not agree on whether the parameter is new.
#
# Why it matters: "warmup: true" edited to "warmup: 1" means something else to most
# training code, and the results stay those of the old run. A check that dvc status is
# clean, common in CI, can never pass where a parameter is NaN.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet dvc==3.67.1 pathspec==1.1.1
export PATH="$work/env/bin:$PATH" DVC_NO_ANALYTICS=1

mkdir repo
cd repo
git init --quiet .
git config user.name tester
git config user.email tester@example.org
dvc init --quiet
cat > params.yaml <<'Y'
warmup: true
clip: .nan
Y
cat > dvc.yaml <<'Y'
stages:
  first:
    cmd: echo run >> first.count; cat params.yaml > first.txt
    params: [warmup]
    outs: [first.txt]
  second:
    cmd: echo run >> second.count; echo done > second.txt
    params: [clip]
    outs: [second.txt]
Y
printf '*.count\n' >> .gitignore

fail() { echo "not as seen before: $1"; exit 1; }
runs() { wc -l < "$1.count" | tr -d ' '; }

dvc repro --quiet
git add -A
git commit --quiet -m start
[ "$(runs first) $(runs second)" = "1 1" ] || fail "first run"

for value in 1 1.0; do
    printf 'warmup: %s\nclip: .nan\n' "$value" > params.yaml
    status=$(dvc status --json first)
    echo "warmup true -> $value: status of its stage $status"
    [ "$status" = "{}" ] || fail "status after $value"
    dvc repro --quiet first
    [ "$(runs first)" = 1 ] || fail "the stage ran after $value"
    grep -q 'warmup: true' dvc.lock || fail "dvc.lock after $value"
    diff=$(dvc params diff --json)
    echo "params diff: $diff"
    case "$diff" in *warmup*) fail "params diff lists warmup" ;; esac
    case "$diff" in *clip*) ;; *) fail "params diff does not list clip" ;; esac
done
printf 'warmup: 2\nclip: .nan\n' > params.yaml
dvc status --json first | grep -q modified || fail "a true change is not seen"
git checkout --quiet params.yaml

for round in 1 2; do
    dvc repro --quiet
    status=$(dvc status --json)
    echo "clip is .nan, status after repro $round: $status"
    echo "$status" | grep -q '"clip": "modified"' || fail "status of the stage with .nan"
    [ "$(runs second)" = 1 ] || fail "the command ran again"
done
echo "as seen before"
