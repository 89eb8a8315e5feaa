// Asks before every shell command: yes or no; with the word "choose" in it, which of two; with the word "edit",
// what to run instead. Before one with the word "soon" it does not wait long.
export default function (pi: any) {
  pi.on("tool_call", async (event: any, ctx: any) => {
    if (event.toolName !== "bash") return;
    const command = String(event.input.command);
    const patience = /\bsoon\b/.test(command) ? { timeout: 400 } : {};
    if (/\bchoose\b/.test(command)) {
      const choice = await ctx.ui.select("Run it?", ["yes", "no"], patience);
      if (choice !== "yes") return { block: true, reason: `the choice is ${choice}` };
    } else if (/\bedit\b/.test(command)) {
      const text = await ctx.ui.editor("Run what?", command);
      if (text !== command) return { block: true, reason: `the text is ${text}` };
    } else {
      const ok = await ctx.ui.confirm("Run this command?", command, patience);
      if (!ok) return { block: true, reason: "denied by user" };
    }
  });
}
