// Follows the runs: asks for the newest state, and puts its parts in place of the old ones.
let version = "$VERSION";
const note = document.createElement("p");
note.id = "connection";
document.querySelector("header").append(note);

async function follow() {
  try {
    const answer = await fetch(`/state?version=${version}`, { cache: "no-store" });
    const state = await answer.json();
    if (state.version !== version) {
      const open = [...document.querySelectorAll("details")].map((box) => box.open);
      for (const name of ["lead", "links", "legend", "sections"]) {
        document.querySelector(`[data-part="${name}"]`).innerHTML = state[name];
      }
      document.querySelectorAll("details").forEach((box, index) => { box.open = Boolean(open[index]); });
      document.querySelector("h1").textContent = document.title = state.title;
      version = state.version;
      prepareFigures();
      applyHidden();
      markWide();
    }
    note.textContent = `Live: updated ${new Date().toLocaleTimeString()}`;
  } catch {
    note.textContent = "The server has stopped: this is the last state.";
  }
  setTimeout(follow, 2000);
}
follow();
