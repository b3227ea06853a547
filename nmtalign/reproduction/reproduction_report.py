"""Writes the folder of a report: report.md, report.html, figures, data files and settings."""

from pathlib import Path

from nmtalign.figures import need_matplotlib
from nmtalign.files import atomic_text, disk_errors, make_folder
from nmtalign.report.document import Document
from nmtalign.report.html_page import to_page
from nmtalign.report.markdown import to_markdown
from nmtalign.reproduction import report_figures, report_tables
from nmtalign.reproduction.plan import WORK, ReproductionPlan
from nmtalign.reproduction.provenance import again, write_facts, write_scores, write_training
from nmtalign.reproduction.reproduction_results import Results
from nmtalign.reproduction.settings_files import write_settings

MARKDOWN, PAGE = "report.md", "report.html"


def begin_folder(plan: ReproductionPlan) -> None:
    """Creates the folder of the report and hides its models from git; raises UsageError without matplotlib."""
    need_matplotlib()
    folder = plan.work
    make_folder(folder)
    with atomic_text(folder / ".gitignore") as stream:
        stream.write(f"# {WORK}: corpora and models; what belongs to the report is beside this folder\n*\n")


def write_report(results: Results) -> Path:
    """Writes all files, removes the pictures of an earlier report, and returns the path of the Markdown file."""
    folder, plan = results.plan.request.folder, results.plan
    figures = folder / report_figures.FIGURES
    with disk_errors(figures):
        for old in figures.glob("*.png"):
            old.unlink()
    for system in results.outcome.translated():
        write_settings(plan, system)
    document = make_document(results)
    for name, text in ((MARKDOWN, to_markdown(document)), (PAGE, to_page(document))):
        with atomic_text(folder / name) as stream:
            stream.write(text)
    write_scores(results, folder / "scores.csv")
    write_training(results, folder / "training.csv")
    write_facts(results, folder / "settings.json")
    return folder / MARKDOWN


def make_document(results: Results) -> Document:
    """Returns the report as a document, and writes its PNG files."""
    folder = results.plan.request.folder
    blocks = [
        *report_tables.opening(results),
        *report_tables.what_shows(results),
        *report_tables.table_one(results),
        *report_tables.table_two(results),
        *report_figures.lengths(results, folder),
        *report_figures.ablations(results),
        *report_figures.heat_maps(results, folder),
        *report_figures.error_rates(results),
        *report_figures.side_by_side(results),
        *report_figures.curves(results, folder),
        *again(results),
    ]
    return Document("Neural machine translation by jointly learning to align and translate, reproduced", blocks)
