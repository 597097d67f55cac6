// Loaded before the page is drawn, so that it is not drawn in the wrong colours first.
const chosenTheme = localStorage.getItem("toolscout.theme");
if (chosenTheme === "light" || chosenTheme === "dark") {
  document.documentElement.dataset.theme = chosenTheme;
}
